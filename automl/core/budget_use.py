"""How much of a sweep's budget is spent, and whether its target is reached."""

from __future__ import annotations

import math
from collections.abc import Iterable

from . import ranking
from .budget import Budget
from .goals import Constraint, Goal
from .trial import Trial, TrialState


class BudgetUse:
    """The use of a budget, as a fold of the events of trials; each call is O(1).

    Args:
        budget: of the sweep.
        goals, constraints: of the sweep; the first goal has the target.
        stops_early: whether a stopper ends trials, so that stopped ones count as whole.
    """

    def __init__(
        self,
        budget: Budget,
        goals: tuple[Goal, ...],
        constraints: tuple[Constraint, ...] = (),
        *,
        stops_early: bool = False,
    ) -> None:
        self._budget = budget
        self._goals = goals
        self._constraints = constraints
        self._stops_early = stops_early
        self.busy_slots = 0
        self._worker_seconds = 0.0  # of attempts that have ended
        self._attempts: dict[int, tuple[float, int]] = {}  # begin and slots of running attempts
        self._begin_sum = 0.0  # over running attempts: begin times slots
        self._num_ended = 0
        self._ended_seconds = 0.0
        self._reached: Trial | None = None
        self._shortest = math.inf  # seconds of the shortest attempt that taught something

    def limit(self, budget: Budget, trials: Iterable[Trial] = ()) -> None:
        """Go on with another budget, which some of the trials may have reached."""
        self._budget = budget
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
        at, slots = self._attempts.pop(trial.number)
        self._begin_sum -= at * slots
        self.busy_slots -= slots
        self._worker_seconds += seconds * slots
        if seconds > 0:  # it was not refused, and not imported
            self._num_ended += 1
            self._ended_seconds += seconds
        self._note_length(trial, seconds)
        self.check_target(trial)

    def check_target(self, trial: Trial) -> None:
        """Check whether a trial that has reported or ended reaches the target."""
        target = self._budget.target
        if target is None or self._reached is not None:
            return
        value = ranking.value(trial, self._goals[0], self._constraints)
        if value is not None and not self._goals[0].better(target, value):
            self._reached = trial

    def reason_to_end(self, now: float) -> str | None:
        """Why the sweep must end now, or None.

        The number of trials is no reason: it only limits new trials (`trials_left`).
        """
        budget = self._budget
        if self._reached is not None:
            return f"trial {self._reached.number} has reached the target {budget.target:g}"
        if budget.time is not None and now >= budget.time:
            return f"the time of {budget.time:g} s is over"
        if budget.worker_time is not None and self._worker_time(now) >= budget.worker_time:
            return f"the worker time of {budget.worker_time:g} s is spent"
        return None

    def reason_to_begin_none(self, now: float, slots: int = 1) -> str | None:
        """Why a new trial could not end within the budget's time, or None.

        It takes at least as long as the shortest so far: completed ones, and if a stopper is set,
        also those that were stopped or paused. A goal with `within` needs only this many seconds.

        Args:
            slots: that the trial would take.
        """
        within = [goal.within for goal in self._goals if goal.within is not None]
        needed = min([self._shortest, *within])
        if not math.isfinite(self._shortest):
            return None
        budget = self._budget
        if budget.time is not None and budget.time - now < needed:
            return f"{budget.time - now:.3g} s are left, and {self._needs(needed)}"
        if budget.worker_time is not None:
            # Running trials need some of what is left as well.
            left = budget.worker_time - self._worker_time(now)
            for at, busy in self._attempts.values():
                left -= max(0.0, needed - (now - at)) * busy
            if left < needed * slots:
                return f"{max(left, 0.0):.3g} s of worker time are left, and {self._needs(needed)}"
        return None

    def seconds_left(self, now: float) -> float:
        """Seconds until a time budget can run out at the earliest; infinite without one."""
        budget = self._budget
        left = math.inf
        if budget.time is not None:
            left = budget.time - now
        if budget.worker_time is not None and self.busy_slots:
            left = min(left, (budget.worker_time - self._worker_time(now)) / self.busy_slots)
        return max(left, 0.0)

    def spent(self, now: float, num_trials: int) -> float:
        """The share of the budget that is spent, from 0 to 1, of the limit that ends first."""
        budget = self._budget
        limits = (
            (now, budget.time),
            (self._worker_time(now), budget.worker_time),
            (num_trials, budget.trials),
        )
        return min(1.0, max((used / limit for used, limit in limits if limit), default=0.0))

    def trials_left(self, num_trials: int) -> int | None:
        """How many more trials may be proposed; None for no limit."""
        limit = self._budget.trials
        return None if limit is None else max(limit - num_trials, 0)

    @property
    def trial_seconds(self) -> float:
        """Mean duration of an attempt; infinite before the first has ended."""
        return self._ended_seconds / self._num_ended if self._num_ended else math.inf

    def _note_length(self, trial: Trial, seconds: float) -> None:
        states = {TrialState.COMPLETED}
        if self._stops_early:
            states |= {TrialState.STOPPED, TrialState.PAUSED}
        if trial.state in states and seconds > 0:  # it has run, and was not imported
            self._shortest = min(self._shortest, seconds)

    def _needs(self, needed: float) -> str:
        if needed < self._shortest:
            return f"the goal needs {needed:.3g} s of training"
        return f"the shortest trial so far took {needed:.3g} s"

    def _worker_time(self, now: float) -> float:
        """Seconds summed over slots, including running attempts."""
        return self._worker_seconds + now * self.busy_slots - self._begin_sum
