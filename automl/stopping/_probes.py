"""Stops a trial by the speed and memory of its first steps, before its quality is known.

A probe is a report without the goals. `probe_updates` of a workload makes one after that many
updates; a user's objective may report speed and memory of its first steps by itself.
"""

import math
from collections.abc import Sequence
from typing import Final

from automl.core import Constraint, Goal, Trial

MIN_TRIALS: Final = 5  # with a result, before a trial is stopped for its speed
MAX_COMPARED: Final = 200  # trials, the newest
SLACK: Final = 1.5  # first steps may be slower than later ones by this factor


class Probes:
    """Stops trials that cannot become good, whatever they would learn.

    Args:
        goals, constraints: of the sweep.
    """

    def __init__(self, goals: Sequence[Goal], constraints: Sequence[Constraint]) -> None:
        self._goals = tuple(goals)
        self._constraints = tuple(constraints)

    def stop_reason(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Why a trial should stop after the probe that it just reported.

        Returns:
            "" if it should go on, or if the newest report is not a probe.
        """
        goals = {goal.metric for goal in self._goals}
        if not trial.reports or any(trial.reports.first(goal) for goal in goals):
            return ""
        return self._violation(trial) or self._too_slow(trial, trials)

    def _violation(self, trial: Trial) -> str:
        """A violated constraint on memory, which never falls, or on speed, with some slack."""
        metrics = trial.reports[-1].metrics
        for constraint in self._constraints:
            value = metrics.get(constraint.metric, math.nan)
            if constraint.aspects == {"speed"}:
                value = value / SLACK if constraint.upper else value * SLACK
            if constraint.aspects != {"quality"} and constraint.excess(value) > 0:
                shown = f"{metrics[constraint.metric]:g}"
                return f"probe: {constraint.metric} is {shown}, {constraint} must hold"
        return ""

    def _too_slow(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Within the goal's time it makes few steps, and no trial was good after that many."""
        goal, last = self._goals[0], trial.reports[-1]
        if goal.within is None or last.seconds <= 0:
            return ""
        each = last.metrics.get("seconds_per_update", last.seconds / max(last.step, 1))
        num_steps = SLACK * goal.within / max(each, 1e-9)
        final, best = [], math.inf
        for other in trials[-MAX_COMPARED:]:
            curve, count = other.reports.curve(goal, self._constraints), len(other.reports)
            if other.state.finished and count and curve[count - 1].lowest < math.inf:
                final.append(curve[count - 1].lowest)
            num_early = curve.first(count, math.nextafter(num_steps, math.inf), timed=False)
            best = min(best, curve[num_early - 1].lowest) if num_early else best
        if len(final) < MIN_TRIALS or best <= sorted(final)[len(final) // 2]:
            return ""
        return (
            f"probe: too slow: about {num_steps:.0f} steps in {goal.within:g} s, "
            "and no trial was better than the median after that many"
        )
