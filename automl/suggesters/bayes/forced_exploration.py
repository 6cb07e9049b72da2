"""Forced exploration: options of which all trials failed, maybe for other reasons.

The demand for likely success would never try them again.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from .candidates import SAME, CandidateSampler
from .model.data import Array, TrialData

FAILED_EVERY = 6  # suggestions, one of which tries a failed option
STALLED_EVERY = 3  # the same in a stalled search
FAIR = 3  # an option with this part of an equal share of the trials was tried enough
HOPELESS = 3  # failed trials of an option without success, after which it is given up


def rows_with(unit: Array, column: int, value: float) -> NDArray[np.bool_]:
    """`n`, which configurations have that value."""
    return np.asarray(np.abs(unit[:, column] - value) < SAME)


def forced_option(
    sampler: CandidateSampler,
    data: TrialData,
    pending: Array,
    number: int,
    *,
    stalled: bool,
) -> tuple[int, float] | None:
    """The option to try now, the one with the fewest trials for its share; mostly None.

    Args:
        pending: `w x d`, pending configurations.
        number: of configurations known.
        stalled: whether the search makes no progress.

    Returns:
        The column of its choice, and its unit value.
    """
    if number % (STALLED_EVERY if stalled else FAILED_EVERY):
        return None
    options = sampler.options()
    num_options = Counter(column for column, _ in options)
    known = np.concatenate([data.unit, pending])
    failed = np.concatenate([data.failed, np.zeros(len(pending), dtype=bool)])
    found: list[tuple[int, tuple[int, float]]] = []
    for column, value in options:
        rows = rows_with(known, column, value)
        tried = int(rows.sum())
        hopeful = tried < HOPELESS and bool(failed.any() and failed[rows].all())
        if hopeful and num_options[column] * tried * FAIR < number:
            found.append((num_options[column] * tried, (column, value)))
    return min(found, key=lambda item: item[0])[1] if found else None


def best_with_each_option(sampler: CandidateSampler, data: TrialData, column: int) -> Array:
    """The best trial with each option of the other choices, `b x d`.

    A failure may be due to a combination with an option that all of the best trials share. With
    several goals, the best has the smallest sum of ranks.
    """
    rows = np.flatnonzero(np.isfinite(data.losses).all(1))
    ranks = data.losses[rows].argsort(0).argsort(0).sum(1)
    unit = data.unit[rows[np.argsort(ranks, kind="stable")]]
    others = [(j, value) for j, value in sampler.options() if j != column]
    return np.concatenate([unit[:0], *(unit[rows_with(unit, j, value)][:1] for j, value in others)])
