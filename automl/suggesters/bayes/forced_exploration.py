"""Choices that were hardly tried: in a stalled search, and where all of their trials failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .candidates import Lattice
from .model.data import Array, Data

NEGLECTED_EVERY = 3  # suggestions of a stalled search: one tries a neglected choice
FAILED_EVERY = 6  # suggestions of any search: one tries a choice of which all trials have failed
FAIR = 3  # a choice that had this part of an equal share of the trials is not neglected
HOPELESS = 3  # trials of a choice that all failed, after which it is not tried for its own sake


@dataclass(frozen=True)
class Neglected:
    """A choice: column and unit value of its parameter, and whether trials fail, and all with it did."""

    column: int
    value: float
    in_vain: bool


def among(unit: Array, column: int, value: float) -> NDArray[np.bool_]:
    """Which of `n` configurations have that value."""
    return np.asarray(np.abs(unit[:, column] - value) < 1e-9)


def neglected(
    lattice: Lattice, data: Data, ahead: Array, number: int, *, stalled: bool
) -> Neglected | None:
    """The choice that was tried least by its share, now and then, else None.

    Where little has improved for long it is one of several; in any search, less often, it is one of which all trials
    have failed, as they may have for other reasons: what demands likely success would never try it again.

    Args:
        ahead: configurations that are pending; number: of configurations known; stalled: little improves.
    """
    if number % (NEGLECTED_EVERY if stalled else FAILED_EVERY):
        return None
    options = Counter(column for column, _ in lattice.branches())
    known = np.concatenate([data.unit, ahead])
    failed = np.concatenate([data.failed, np.zeros(len(ahead), dtype=bool)])
    found: list[tuple[int, Neglected]] = []
    for column, value in lattice.branches():
        rows = among(known, column, value)
        tried, in_vain = int(rows.sum()), bool(failed.any() and failed[rows].all())
        wanted = tried < HOPELESS if in_vain else stalled
        if wanted and options[column] * tried * FAIR < number:
            found.append((options[column] * tried, Neglected(column, value, in_vain)))
    return min(found, key=lambda item: item[0])[1] if found else None


def leaders(lattice: Lattice, data: Data, column: int) -> Array:
    """The best trial with each option of the other choices: what fails may be a combination with one of them, which all
    of the best ones may have in common. Of several goals that with the smallest sum of ranks."""
    rows = np.flatnonzero(np.isfinite(data.losses).all(1))
    ranks = data.losses[rows].argsort(0).argsort(0).sum(1)
    unit = data.unit[rows[np.argsort(ranks, kind="stable")]]
    others = [(j, value) for j, value in lattice.branches() if j != column]
    return np.concatenate([unit[:0], *(unit[among(unit, j, value)][:1] for j, value in others)])
