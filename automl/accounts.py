"""What a sweep has spent and reached of its budget."""

from __future__ import annotations

from collections.abc import Sequence

from . import ranking
from .spec import SweepSpec
from .trial import Trial


class Accounts:
    """Keeps count of the budget of a sweep as trials report and end.

    Args:
        slots_of: how many slots a trial takes.
    """

    def __init__(self, spec: SweepSpec, trials: Sequence[Trial], slots: Sequence[int]) -> None:
        self._spec = spec
        self.worker_seconds = sum(trial.seconds * count for trial, count in zip(trials, slots, strict=True))
        self._reached: Trial | None = None
        for trial in trials:
            self.look(trial)

    def charge(self, seconds: float, slots: int) -> None:
        """An attempt that took so many seconds on so many slots has ended."""
        self.worker_seconds += seconds * slots

    def look(self, trial: Trial) -> None:
        """Whether a trial that has reported or ended reaches the target."""
        target = self._spec.budget.target
        if target is None or self._reached is not None:
            return
        goal = self._spec.goals[0]
        worth = ranking.value(
            trial, goal, self._spec.constraints, last_report_counts=self._spec.last_report_counts
        )
        if worth is not None and not goal.better(target, worth):
            self._reached = trial

    def over(self, seconds: float, running_worker_seconds: float) -> str | None:
        """Why the sweep ends now, None where it goes on; the number of trials is no reason to end what runs."""
        budget = self._spec.budget
        if self._reached is not None:
            return f"trial {self._reached.number} has reached the target {budget.target:g}"
        if budget.time is not None and seconds >= budget.time:
            return f"the time of {budget.time:g} s is over"
        if budget.worker_time is not None and self.worker_seconds + running_worker_seconds >= budget.worker_time:
            return f"the worker time of {budget.worker_time:g} s is spent"
        return None

    def trials_left(self, num_trials: int) -> int | None:
        """How many more trials may be proposed; None for any number."""
        limit = self._spec.budget.trials
        return None if limit is None else max(limit - num_trials, 0)
