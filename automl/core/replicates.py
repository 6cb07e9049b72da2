"""Runs of one configuration with other seeds: which trials belong together, and what they prove."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from . import ranking
from .goals import Constraint, Goal
from .trial import Trial, TrialState

MAX_SHARE: Final = 0.2  # of repeated trials; they come in the last part of the budget, as large


def original(trial: Trial) -> int:
    """The number of the first trial of its configuration."""
    return trial.number if trial.replicate_of is None else trial.replicate_of


def runs(trials: Iterable[Trial]) -> dict[int, list[Trial]]:
    """The trials by the number of the first one of their configuration."""
    found: dict[int, list[Trial]] = {}
    for trial in trials:
        found.setdefault(original(trial), []).append(trial)
    return found


def due(history: Sequence[Trial], pending: Sequence[Trial], wanted: int) -> list[Trial]:
    """The first trials of configurations that are to run again, the oldest first.

    Args:
        history, pending: all trials.
        wanted: runs of each configuration. One whose first run failed or was stopped runs once.
    """
    counts = Counter(map(original, [*history, *pending]))
    return [
        trial
        for trial in history
        if trial.replicate_of is None
        and trial.state is TrialState.COMPLETED
        and counts[trial.number] < wanted
    ]


def may_repeat(trials: Sequence[Trial]) -> bool:
    """Whether at most `MAX_SHARE` of the trials are repeated if one more is."""
    repeated = sum(trial.replicate_of is not None for trial in trials)
    return repeated + 1 <= MAX_SHARE * (len(trials) + 1)


def best_mean(
    trials: Iterable[Trial], goal: Goal, constraints: Sequence[Constraint] = ()
) -> Trial | None:
    """The first trial of the configuration with the best mean of its completed runs."""
    means = [
        (fmean(goal.loss(worth) for worth in worths), found[0])
        for found, worths in _completed(trials, goal, constraints)
    ]
    return min(means, key=lambda one: one[0])[1] if means else None


def differ(trials: Iterable[Trial], goal: Goal) -> bool | None:
    """Whether runs of a configuration differ in the goal; None if none has two values."""
    repeated = [worths for _, worths in _completed(trials, goal) if len(worths) > 1]
    return any(len({*worths}) > 1 for worths in repeated) if repeated else None


def deterministic(trials: Sequence[Trial], goal: Goal) -> tuple[int, int] | None:
    """Two trials that show that the seed does not change the goal.

    Both are runs of one configuration and have the same value, which no other configuration has: a
    coarse value, such as a share of 20 examples, may be the same by chance.

    Returns:
        Their numbers; None if there are none, or if two runs of a configuration differ.
    """
    if differ(trials, goal) is not False:
        return None
    groups = _completed(trials, goal)
    owners = Counter(worths[0] for _, worths in groups)
    for found, worths in groups:
        if len(worths) > 1 and owners[worths[0]] == 1:
            return found[0].number, found[1].number
    return None


def _completed(
    trials: Iterable[Trial], goal: Goal, constraints: Sequence[Constraint] = ()
) -> list[tuple[list[Trial], list[float]]]:
    """The completed runs of each configuration that have a value, and their values."""
    groups: dict[int, tuple[list[Trial], list[float]]] = {}
    for trial in trials:
        worth = ranking.value(trial, goal, constraints)
        if trial.state is TrialState.COMPLETED and worth is not None:
            found, worths = groups.setdefault(original(trial), ([], []))
            found.append(trial)
            worths.append(worth)
    return list(groups.values())
