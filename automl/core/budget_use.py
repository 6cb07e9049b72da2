"""How much of a sweep's budget is spent, and whether its target is reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from . import ranking
from .spec import SweepSpec
from .trial import Trial, TrialState


class BudgetUse:
    """The use of a budget, as a fold of the events of trials; each call is O(1).

    Args:
        spec: of the sweep.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self.busy_slots = 0
        self._worker_seconds = 0.0  # of attempts that have ended
        self._attempts: dict[int, tuple[float, int]] = {}  # begin and slots of running attempts
        self._begin_sum = 0.0  # over running attempts: begin times slots
        self._num_ended = 0
        self._ended_seconds = 0.0
        self._reached: int | None = None  # the trial that has reached the target
        self._shortest_whole = math.inf  # seconds of the shortest attempt that was completed
        self._shortest_cut = math.inf  # and of the shortest that was stopped or paused

    def specify(self, spec: SweepSpec, trials: Iterable[Trial] = ()) -> None:
        """Go on with another specification, whose target some of the trials may have reached."""
        self._spec = spec
        self._reached = None
        for trial in trials:
            self.check_target(trial)

    def begin(self, number: int, at: float, slots: int) -> None:
        """An attempt of a trial begins at this time."""
        self._attempts[number] = (at, slots)
        self._begin_sum += at * slots
        self.busy_slots += slots

    def begun(self, number: int) -> float:
        """When the running attempt of a trial began; 0 if none runs."""
        return self._attempts[number][0] if number in self._attempts else 0.0

    def end(self, trial: Trial, seconds: float) -> None:
        """The attempt of a trial has ended after this many seconds."""
        at, slots = self._attempts.pop(trial.number, (0.0, 0))
        self._begin_sum -= at * slots
        self.busy_slots -= slots
        self._worker_seconds += seconds * slots
        if seconds > 0:  # it was not refused, and not imported
            self._num_ended += 1
            self._ended_seconds += seconds
            if trial.state is TrialState.COMPLETED:
                self._shortest_whole = min(self._shortest_whole, seconds)
            elif trial.state in (TrialState.STOPPED, TrialState.PAUSED):
                self._shortest_cut = min(self._shortest_cut, seconds)
        self.check_target(trial)

    def check_target(self, trial: Trial) -> None:
        """Check whether a trial that has reported or ended reaches the target."""
        spec, target = self._spec, self._spec.budget.target
        if target is None or self._reached is not None:
            return
        value = ranking.value(trial, spec.goals[0], spec.constraints)
        if value is not None and not spec.goals[0].better(target, value):
            self._reached = trial.number

    def reason_to_end(self, now: float) -> str:
        """Why the sweep must end now; "" if it goes on."""
        budget = self._spec.budget
        if self._reached is not None:
            return f"trial {self._reached} has reached the target {budget.target:g}"
        if budget.time is not None and now >= budget.time:
            return f"the time of {budget.time:g} s is over"
        if budget.worker_time is not None and self.worker_time(now) >= budget.worker_time:
            return f"the worker time of {budget.worker_time:g} s is spent"
        return ""

    def reason_to_begin_none(self, now: float, slots: int = 1) -> str:
        """Why a new trial could not end within the budget's time; "" if it could.

        It takes at least as long as the shortest so far: completed ones, and if a stopper is set,
        also those that were stopped or paused. A goal with `within` needs only this many seconds.

        Args:
            slots: that the trial would take.
        """
        budget = self._spec.budget
        has_end = budget.time is not None or budget.worker_time is not None
        if not has_end or not math.isfinite(self._shortest):
            return ""
        within = [goal.within for goal in self._spec.goals if goal.within is not None]
        needed = min([self._shortest, *within])
        if budget.time is not None and budget.time - now < needed:
            return f"{budget.time - now:.3g} s are left, and {self._needs(needed)}"
        if budget.worker_time is not None:
            # Running trials need some of what is left as well.
            left = budget.worker_time - self.worker_time(now)
            for at, busy in self._attempts.values():
                left -= max(0.0, needed - (now - at)) * busy
            if left < needed * slots:
                return f"{max(left, 0.0):.3g} s of worker time are left, and {self._needs(needed)}"
        return ""

    def seconds_left(self, now: float) -> float:
        """Seconds until a time budget can run out at the earliest; infinite without one."""
        budget = self._spec.budget
        left = math.inf
        if budget.time is not None:
            left = budget.time - now
        if budget.worker_time is not None and self.busy_slots:
            left = min(left, (budget.worker_time - self.worker_time(now)) / self.busy_slots)
        return max(left, 0.0)

    def spent(self, now: float, num_trials: int) -> float:
        """The share of the budget that is spent, from 0 to 1, of the limit that ends first."""
        share = self._spec.budget.spent(num_trials, now, self.worker_time(now))
        return min(1.0, share or 0.0)

    @property
    def trial_seconds(self) -> float:
        """Mean duration of an attempt; infinite before the first has ended."""
        return self._ended_seconds / self._num_ended if self._num_ended else math.inf

    @property
    def _shortest(self) -> float:
        """Seconds of the shortest attempt that taught something."""
        cut = math.inf if self._spec.stopper == "none" else self._shortest_cut
        return min(self._shortest_whole, cut)

    def _needs(self, needed: float) -> str:
        if needed < self._shortest:
            return f"the goal needs {needed:.3g} s of training"
        return f"the shortest trial so far took {needed:.3g} s"

    def worker_time(self, now: float) -> float:
        """Seconds summed over slots, including running attempts."""
        return self._worker_seconds + now * self.busy_slots - self._begin_sum

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without the specification."""
        facts = {name.removeprefix("_"): value for name, value in vars(self).items()}
        del facts["spec"]
        facts["attempts"] = [[number, *found] for number, found in self._attempts.items()]
        return {name: None if value == math.inf else value for name, value in facts.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], spec: SweepSpec) -> BudgetUse:
        """The inverse of `to_dict`."""
        use = cls(spec)
        for name, value in data.items():
            key = name if hasattr(use, name) else f"_{name}"
            setattr(use, key, math.inf if value is None and name.startswith("shortest") else value)
        use._attempts = {number: (at, slots) for number, at, slots in data["attempts"]}
        return use
