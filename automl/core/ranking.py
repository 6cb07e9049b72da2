"""Which trial is best: the value that a trial has for a goal, the best trial, the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from workers.protocol import Metrics

from .goals import Constraint, Goal
from .trial import Trial, TrialState


def value(
    trial: Trial,
    goal: Goal,
    constraints: Sequence[Constraint] = (),
    *,
    last_report_counts: bool = False,
) -> float | None:
    """What the trial is worth: the best of its reports that satisfy the constraints, its final metrics among them.

    Returns:
        None where the trial failed, or nothing finite that satisfies the constraints was reported. With
        `last_report_counts` only the final metrics of a trial that has ended count.
    """
    if trial.state is TrialState.FAILED:
        return None
    if last_report_counts and trial.state not in (TrialState.COMPLETED, TrialState.STOPPED):
        return None
    points = [trial.metrics] if last_report_counts else _points(trial, goal, constraints)
    found = [
        point[goal.metric]
        for point in points
        if math.isfinite(point.get(goal.metric, math.nan))
        and all(c.holds(point) for c in constraints)
    ]
    return min(found, key=goal.loss, default=None)


def best(
    trials: Iterable[Trial],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
    *,
    last_report_counts: bool = False,
) -> Trial | None:
    """The trial with the best value of the first goal, the earlier one of equals; None where no trial has one."""
    found, least = None, math.inf
    for trial in trials:
        worth = value(trial, goals[0], constraints, last_report_counts=last_report_counts)
        if worth is not None and goals[0].loss(worth) < least:
            found, least = trial, goals[0].loss(worth)
    return found


def pareto(
    trials: Iterable[Trial],
    goals: Sequence[Goal],
    constraints: Sequence[Constraint] = (),
    *,
    last_report_counts: bool = False,
) -> list[Trial]:
    """The trials that no other is at least as good as in every goal and better in one, by number; O(n m) for m of n."""
    scored = []
    for trial in trials:
        worths = [
            value(trial, goal, constraints, last_report_counts=last_report_counts) for goal in goals
        ]
        if None not in worths:
            losses = tuple(
                goal.loss(worth)
                for goal, worth in zip(goals, worths, strict=True)
                if worth is not None
            )
            scored.append((losses, trial))
    front: list[tuple[tuple[float, ...], Trial]] = []
    for losses, trial in sorted(scored, key=lambda item: (item[0], item[1].number)):
        if not any(dominates(other, losses) for other, _ in front):
            front.append((losses, trial))
    return sorted((trial for _, trial in front), key=lambda trial: trial.number)


def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether `one` is at least as good in every loss and better in one."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def _points(trial: Trial, goal: Goal, constraints: Sequence[Constraint]) -> Iterator[Metrics]:
    """The metrics at each report, those that constraints need and the report lacks taken from the final ones."""
    needed = {c.metric for c in constraints}
    final = {key: trial.metrics[key] for key in needed if key in trial.metrics}
    yield trial.metrics
    for point in trial.reports:
        if goal.metric in point.metrics:
            yield {**final, **point.metrics} if final else point.metrics
