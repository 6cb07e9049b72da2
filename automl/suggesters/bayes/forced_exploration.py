"""Forced exploration: options that the acquisition would hardly try, or never again.

In a stalled search these are rarely tried options. In any search they are options of which all
trials failed, maybe for other reasons: the demand for likely success would never try them again.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .candidates import SAME, CandidateSampler
from .model.data import Array, TrialData
from .policy import ALL_RULES, Policy

RARE_EVERY = 3  # suggestions of a stalled search, one of which tries a rare option
FAILED_EVERY = 6  # suggestions of any search, one of which tries a failed option
FAIR = 3  # an option with this part of an equal share of the trials is not rare
HOPELESS = 3  # failed trials of an option without success, after which it is given up


@dataclass(frozen=True)
class ForcedOption:
    """An option of a choice to try.

    Args:
        column: of the choice.
        value: unit value of the option.
        failed: whether all of its trials failed.
    """

    column: int
    value: float
    failed: bool


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
    policy: Policy = ALL_RULES,
) -> ForcedOption | None:
    """The option to try now, the one with the fewest trials for its share; mostly None.

    Args:
        pending: `w x d`, pending configurations.
        number: of configurations known.
        stalled: whether the search makes no progress.
    """
    if number % (RARE_EVERY if stalled else FAILED_EVERY):
        return None
    options = sampler.options()
    num_options = Counter(column for column, _ in options)
    known = np.concatenate([data.unit, pending])
    failed = np.concatenate([data.failed, np.zeros(len(pending), dtype=bool)])
    found: list[tuple[int, ForcedOption]] = []
    for column, value in options:
        rows = rows_with(known, column, value)
        tried = int(rows.sum())
        all_failed = bool(failed.any() and failed[rows].all())
        wanted = stalled and policy.try_rare_options
        if all_failed:
            wanted = tried < HOPELESS and policy.retry_failed_options
        if wanted and num_options[column] * tried * FAIR < number:
            found.append((num_options[column] * tried, ForcedOption(column, value, all_failed)))
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
