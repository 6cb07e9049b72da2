"""Runs of one configuration with other seeds: which trials belong together, and what they prove."""

from collections import Counter
from collections.abc import Iterable, Sequence

from . import ranking
from .goals import Goal
from .trial import Trial, TrialState


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


def deterministic(trials: Sequence[Trial], goal: Goal) -> tuple[int, int] | None:
    """Two trials that show that the seed does not change the goal.

    Both are runs of one configuration and have the same value, which no other configuration has: a
    coarse value, such as a share of 20 examples, may be the same by chance.

    Returns:
        Their numbers; None if there are none, or if two runs of a configuration differ.
    """
    if all(trial.replicate_of is None for trial in trials):
        return None
    groups = [
        [
            (worth, one.number)
            for one in found
            if one.state is TrialState.COMPLETED and (worth := ranking.value(one, goal)) is not None
        ]
        for found in runs(trials).values()
    ]
    values = [{worth for worth, _ in group} for group in groups]
    owners = Counter(worth for distinct in values for worth in distinct)
    if any(len(distinct) > 1 for distinct in values):
        return None
    for group in groups:
        if len(group) > 1 and owners[group[0][0]] == 1:
            return group[0][1], group[1][1]
    return None
