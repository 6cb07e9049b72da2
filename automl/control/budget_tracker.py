"""What a sweep has spent and reached of its budget."""

from __future__ import annotations

import math

from automl.core import ranking
from automl.core.spec import SweepSpec
from automl.core.trial import Trial


class Accounts:
    """Keeps count of the budget of a sweep as trials begin, report and end; every step takes constant time.

    Args:
        spec: of the sweep.
        seconds: of the sweep's earlier runs.
    """

    def __init__(self, spec: SweepSpec, seconds: float = 0.0) -> None:
        self._spec = spec
        self.earlier_seconds = seconds
        self.worker_seconds = 0.0
        self.busy_slots = 0
        self._begun: dict[int, tuple[float, int]] = {}
        self._offset = 0.0  # sum over what runs of beginning times slots
        self._num_ended, self._ended_seconds = 0, 0.0
        self._reached: Trial | None = None

    def recall(self, trial: Trial, slots: int) -> None:
        """Take in what an earlier run of the sweep spent on a trial."""
        self.worker_seconds += trial.seconds * slots
        self.look(trial)

    def begin(self, number: int, at: float, slots: int) -> None:
        """An attempt begins."""
        self._begun[number] = (at, slots)
        self._offset += at * slots
        self.busy_slots += slots

    def begun(self, number: int) -> float | None:
        """When the running attempt of a trial began; None where this run did not begin it."""
        return self._begun[number][0] if number in self._begun else None

    def end(self, trial: Trial, seconds: float) -> None:
        """An attempt that took so long has ended."""
        at, slots = self._begun.pop(trial.number)
        self._offset -= at * slots
        self.busy_slots -= slots
        self.worker_seconds += seconds * slots
        self._num_ended += 1
        self._ended_seconds += seconds
        self.look(trial)

    def look(self, trial: Trial) -> None:
        """See whether a trial that has reported or ended reaches the target."""
        target = self._spec.budget.target
        if target is None or self._reached is not None:
            return
        goal, last = self._spec.goals[0], self._spec.last_report_counts
        worth = ranking.value(trial, goal, self._spec.constraints, last_report_counts=last)
        if worth is not None and not goal.better(target, worth):
            self._reached = trial

    def over(self, now: float) -> str | None:
        """Why the sweep ends now, None where it goes on; a full number of trials is no reason to end what runs."""
        budget = self._spec.budget
        if self._reached is not None:
            return f"trial {self._reached.number} has reached the target {budget.target:g}"
        if budget.time is not None and now >= budget.time:
            return f"the time of {budget.time:g} s is over"
        running = now * self.busy_slots - self._offset
        if budget.worker_time is not None and self.worker_seconds + running >= budget.worker_time:
            return f"the worker time of {budget.worker_time:g} s is spent"
        return None

    def seconds_left(self, now: float) -> float:
        """Until a budget of time can run out at the earliest; infinite where there is none."""
        budget, left = self._spec.budget, math.inf
        if budget.time is not None:
            left = budget.time - now
        if budget.worker_time is not None and self.busy_slots:
            spent = self.worker_seconds + now * self.busy_slots - self._offset
            left = min(left, (budget.worker_time - spent) / self.busy_slots)
        return max(left, 0.0)

    def spent(self, now: float, num_trials: int) -> float:
        """The share of the budget that is used up, from 0 to 1, of the part of it that ends first."""
        budget = self._spec.budget
        worker = self.worker_seconds + now * self.busy_slots - self._offset
        spent = 0.0
        for used, limit in (
            (now, budget.time),
            (worker, budget.worker_time),
            (num_trials, budget.trials),
        ):
            if limit:
                spent = max(spent, used / limit)
        return min(1.0, spent)

    def trials_left(self, num_trials: int) -> int | None:
        """How many more trials may be proposed; None for any number."""
        limit = self._spec.budget.trials
        return None if limit is None else max(limit - num_trials, 0)

    def period(self, num_slots: int) -> float:
        """Seconds from one end of a trial to the next when every slot is busy; infinite where none has ended."""
        return self.trial_seconds / num_slots

    @property
    def trial_seconds(self) -> float:
        """How long attempts take on average; infinite where none has ended."""
        return self._ended_seconds / self._num_ended if self._num_ended else math.inf
