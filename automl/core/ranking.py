"""Ranks trials: their values, the best, the Pareto front, and runs of one configuration."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .goals import SECONDS, Constraint, Goal, declared
from .trial import Trial, TrialState

if TYPE_CHECKING:
    from .spec import SweepSpec


def value(trial: Trial, goal: Goal, constraints: Sequence[Constraint] = ()) -> float | None:
    """The value of a trial for a goal: the best report or final metric within the constraints.

    A goal `at_end` takes the final metrics only, of a trial that has ended. So does a goal whose
    `returned` value counts, of a trial that has returned it.

    Returns:
        None if the trial failed or pruned itself, or if it has no finite value that satisfies the
        constraints.
    """
    return None if trial.pruned else observed(trial, goal, constraints)


def observed(trial: Trial, goal: Goal, constraints: Sequence[Constraint] = ()) -> float | None:
    """What a suggester learns of a goal: like `value`, also of a trial that pruned itself."""
    if trial.state is TrialState.FAILED:
        return None
    # The controller knows the time of a trial at its end, unless the trial reports it.
    is_total = goal.metric == SECONDS.name and trial.reports.first(goal.metric) is None
    if (goal.at_end or is_total) and trial.state not in (TrialState.COMPLETED, TrialState.STOPPED):
        return None
    found = [trial.metrics] if all(c.holds(trial.metrics) for c in constraints) else []
    returned = goal.returned and goal.metric in trial.returned
    if not goal.at_end and not returned and trial.reports:
        leader = _leader(trial, goal, constraints)
        found += [] if leader is None else [trial.reports[leader].metrics]
    values = [point.get(goal.metric, math.nan) for point in found]
    return (max if goal.maximize else min)(filter(math.isfinite, values), default=None)


def origin(trial: Trial, goal: Goal, constraints: Sequence[Constraint] = ()) -> str:
    """Where the value of a trial for a goal comes from; see `Trial.value_from`."""
    worth = value(trial, goal, constraints)
    if worth is None:
        return ""
    if goal.metric in trial.returned and worth == trial.metrics[goal.metric]:
        return "returned"
    leader = None if goal.at_end else _leader(trial, goal, constraints)
    if leader is not None and worth == trial.reports[leader].metrics.get(goal.metric):
        return f"best report, at step {trial.reports[leader].step}"
    if trial.reports.first(goal.metric) is not None:
        return "last report"
    return "measured" if declared(goal.metric, ()) else "returned"


def best(
    trials: Iterable[Trial],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
) -> Trial | None:
    """The best by the first goal, of equals by the next ones; None if no trial has a value."""
    scored = [
        (
            [
                math.inf if (worth := value(trial, goal, constraints)) is None else goal.loss(worth)
                for goal in goals
            ],
            trial,
        )
        for trial in trials
        if value(trial, goals[0], constraints) is not None
    ]
    return min(scored, key=lambda item: item[0])[1] if scored else None


def pareto(
    trials: Iterable[Trial],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
) -> list[Trial]:
    """The trials that no other trial dominates, by number. O(n m) for a front of m of n trials."""
    scored = []
    for trial in trials:
        losses = tuple(
            goal.loss(worth)
            for goal in goals
            if (worth := value(trial, goal, constraints)) is not None
        )
        if len(losses) == len(goals):
            scored.append((losses, trial))
    front: list[tuple[tuple[float, ...], Trial]] = []
    for losses, trial in sorted(scored, key=lambda item: (item[0], item[1].number)):
        if not any(dominates(other, losses) for other, _ in front):
            front.append((losses, trial))
    return sorted((trial for _, trial in front), key=lambda trial: trial.number)


def valued(
    trials: Iterable[Trial],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
    spec: SweepSpec | None = None,
) -> list[Trial]:
    """The trials with their `value` for the first goal, and where it comes from.

    Args:
        spec: of the sweep; gives the trials the parameters that are new since they ran.
    """
    return [
        replace(
            trial,
            params=trial.params if spec is None else spec.completed(trial.params),
            value=value(trial, goals[0], constraints),
            value_from=origin(trial, goals[0], constraints),
        )
        for trial in trials
    ]


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether losses are at least as good as others for every goal, and better for one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _leader(trial: Trial, goal: Goal, constraints: Sequence[Constraint]) -> int | None:
    # The place of the best report that satisfies the constraints.
    return trial.reports.curve(goal, constraints).leader(len(trial.reports), trial.metrics)


MAX_SHARE: Final = 0.2  # of repeated trials; they come in the last part of the budget, as large


def original(trial: Trial) -> int:
    """The number of the first trial of its configuration."""
    return trial.number if trial.replicate_of is None else trial.replicate_of


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
        worth = value(trial, goal, constraints)
        if trial.state is TrialState.COMPLETED and worth is not None:
            found, worths = groups.setdefault(original(trial), ([], []))
            found.append(trial)
            worths.append(worth)
    return list(groups.values())
