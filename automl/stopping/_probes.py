"""What a trial's first few steps say of its speed and memory, before its quality is paid for.

A probe is a report without the goals: `probe_updates` of a workload makes one after so many updates, an objective of
one's own reports its first steps' speed and memory by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from automl.core.goals import Constraint, Goal
from automl.core.trial import Trial

LEAST_TRIALS: Final = 5  # with a result, before one is stopped for its pace
MOST_COMPARED: Final = 200  # the newest
SLACK: Final = 1.5  # first steps may be slower than the rest: so much faster it may yet become


class Probes:
    """Stops what cannot be good any more, whatever it would learn.

    Args:
        goals, constraints: of the sweep.
    """

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self._goals, self._constraints = tuple(goals), tuple(constraints)

    def verdict(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Why a trial whose newest report is a probe is not worth going on with; "" where it is, or is no probe."""
        names = [goal.metric for goal in self._goals]
        if not trial.reports or names[0] in trial.reports[-1].metrics:
            return ""
        if any(name in point.metrics for point in trial.reports for name in names):
            return ""
        return self._broken(trial) or self._late(trial, trials)

    def _broken(self, trial: Trial) -> str:
        """A bound on memory, which never falls again, or on speed, with some slack, is broken already."""
        from automl.suggesters.bayes.model import aspects

        metrics = trial.reports[-1].metrics
        for constraint in self._constraints:
            measured = aspects.of_metric(constraint.metric)
            value = metrics.get(constraint.metric, math.nan)
            if measured == aspects.SPEED:
                value = value / SLACK if constraint.upper else value * SLACK
            if measured != aspects.QUALITY and constraint.excess(value) > 0:
                return f"probe: {constraint.metric} is {metrics[constraint.metric]:g}, {constraint} must hold"
        return ""

    def _late(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """In the goal's time it makes so few steps that nobody was as good as the median after as many."""
        goal, last = self._goals[0], trial.reports[-1]
        if goal.within is None or last.seconds <= 0:
            return ""
        each = last.metrics.get("seconds_per_update", last.seconds / max(last.step, 1))
        upto = SLACK * goal.within / max(each, 1e-9)
        ends, best = [], math.inf
        for other in trials[-MOST_COMPARED:]:
            points = [
                (p.step, goal.loss(p.metrics[goal.metric]))
                for p in other.reports
                if goal.metric in p.metrics
            ]
            points = [(step, loss) for step, loss in points if math.isfinite(loss)]
            if points:
                if other.state.finished:
                    ends.append(min(loss for _, loss in points))
                best = min([best, *(loss for step, loss in points if step <= upto)])
        if len(ends) < LEAST_TRIALS or best <= sorted(ends)[len(ends) // 2]:
            return ""
        return f"probe: it makes {upto:.0f} steps in {goal.within:g} s, nobody was better than the median by then"
