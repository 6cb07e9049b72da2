"""The state of a sweep: the fold of its log. Pure: no file, no clock, nothing random."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from automl.errors import StoreError
from workers.protocol import Report

from . import ranking
from .events import (
    OF_TRIALS,
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Moved,
    Proposed,
    SpecChanged,
    SweepEvent,
    TrialEvent,
    fold,
)
from .goals import Constraint, Goal
from .resources import Budget
from .spec import SweepSpec
from .trial import AGENT, Trial, TrialIndex, TrialState, without_held

ENQUEUE: Final = "enqueue"  # the kind of the command that gives a configuration to try


class SweepState:
    """The state of one sweep after the events that were applied.

    Attributes:
        number: of the last record that was applied.
        environment: where the sweep was created.
        trials: every trial by number; the list grows and its items are replaced.
        index: of the trials by state.
        seconds: of the sweep, at the latest event.
        closed: how the last controller ended its run: "finished", "interrupted" or "failed";
            "interrupted" before the first, and if the sweep has gone on since.
        reason: why it has ended.
        busy_slots: that running attempts take.
        limits: of parameters that a person has narrowed, as JSON data (`suggesters.domain.Limit`).
        requests: commands that wait for an answer or a trial, by number of their record, in order.
        stop_number: number of the latest command to stop the sweep; 0 if there is none.
        values: of finished trials for the first goal, by number; None of those that have none.
    """

    def __init__(self) -> None:
        self.number = self.stop_number = 0
        self.environment: Mapping[str, Any] = {}
        self.trials: list[Trial] = []
        self.index = TrialIndex()
        self._spec: SweepSpec | None = None
        self.busy_slots = self._num_ended = 0
        # Of attempts that have ended, by slots and without; over running ones: begin times slots.
        self._worker_seconds = self._ended_seconds = self._begin_sum = 0.0
        self._attempts: dict[int, tuple[float, int]] = {}  # begin and slots of running attempts
        self._reached: int | None = None  # the trial that has reached the target
        self._shortest = math.inf  # seconds of the shortest attempt that taught something
        self.seconds = 0.0
        self.closed, self.reason = "interrupted", ""
        self.limits: dict[str, Any] = {}
        self.requests: dict[int, Command] = {}
        self.values: dict[int, float | None] = {}

    @property
    def spec(self) -> SweepSpec:
        """The newest specification."""
        if self._spec is None:
            raise StoreError("the log of the sweep does not begin with its specification")
        return self._spec

    @spec.setter
    def spec(self, spec: SweepSpec) -> None:
        """Go on with a specification; its dictionary may have less."""
        self._spec, self._reached, self.values = spec, None, {}
        for trial in self.trials:
            self._evaluate(trial)
            self._check_target(trial)

    @property
    def trials_left(self) -> int:
        """How many more trials the budget allows."""
        limit = self.spec.budget.trials
        return 2**31 if limit is None else max(limit - len(self.trials), 0)

    # the use of the budget; each call is O(1)

    def begun(self, number: int) -> float:
        """When the running attempt of a trial began; 0 if none runs."""
        return self._attempts[number][0] if number in self._attempts else 0.0

    def _end(self, trial: Trial, seconds: float) -> None:
        at, slots = self._attempts.pop(trial.number, (0.0, 0))
        self._begin_sum -= at * slots
        self.busy_slots -= slots
        self._worker_seconds += seconds * slots
        if seconds > 0:  # it was not refused, and not imported
            self._num_ended += 1
            self._ended_seconds += seconds
            if trial.state in (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED):
                self._shortest = min(self._shortest, seconds)
        self._check_target(trial)

    def _check_target(self, trial: Trial) -> None:
        spec, target = self.spec, self.spec.budget.target
        if target is None or self._reached is not None:
            return
        goal = spec.goals[0]
        value = ranking.value(trial, goal, spec.constraints)
        if value is not None and goal.loss(value) <= goal.loss(target):
            self._reached = trial.number

    def reason_to_end(self, now: float) -> str:
        """Why the sweep must end now; "" if it goes on."""
        budget = self.spec.budget
        if self._reached is not None:
            return f"trial {self._reached} has reached the target {budget.target:g}"
        if budget.time is not None and now >= budget.time:
            return f"the time of {budget.time:g} s is over"
        if budget.worker_time is not None and self.worker_time(now) >= budget.worker_time:
            return f"the worker time of {budget.worker_time:g} s is spent"
        return ""

    def reason_to_begin_none(self, now: float, slots: int = 1) -> str:
        """Why a new trial could not end within the budget's time; "" if it could.

        It takes at least as long as the shortest so far. A goal with `within` needs only this many
        seconds.

        Args:
            slots: that the trial would take.
        """
        budget = self.spec.budget
        if self._shortest == math.inf:
            return ""
        within = [goal.within for goal in self.spec.goals if goal.within is not None]
        needed = min([self._shortest, *within])
        left = math.inf if budget.time is None else budget.time - now
        if budget.worker_time is not None:
            # Running trials need some of what is left as well.
            running = sum(max(0.0, needed - now + at) * n for at, n in self._attempts.values())
            left = min(left, (budget.worker_time - self.worker_time(now) - running) / slots)
        if left >= needed:
            return ""
        left = max(left, 0.0)
        return f"{left:.3g} s are left, and the shortest trial so far took {self._shortest:.3g} s"

    def seconds_left(self, now: float) -> float:
        """Seconds until a time budget can run out at the earliest; infinite without one."""
        budget = self.spec.budget
        left = math.inf
        if budget.time is not None:
            left = budget.time - now
        if budget.worker_time is not None and self.busy_slots:
            left = min(left, (budget.worker_time - self.worker_time(now)) / self.busy_slots)
        return max(left, 0.0)

    def spent(self, now: float, num_trials: int) -> float:
        """The share of the budget that is spent, from 0 to 1, of the limit that ends first."""
        share = self.spec.budget.spent(num_trials, now, self.worker_time(now))
        return min(1.0, share or 0.0)

    @property
    def trial_seconds(self) -> float:
        """Mean duration of an attempt; 0 before the first has ended."""
        return self._ended_seconds / max(self._num_ended, 1)

    def worker_time(self, now: float) -> float:
        """Seconds summed over slots, including running attempts."""
        return self._worker_seconds + now * self.busy_slots - self._begin_sum

    # the fold

    def visible_trials(self) -> Sequence[Trial]:
        """Every trial by number, as stoppers see it."""
        return list(map(without_held, self.trials)) if self.index.held else self.trials

    def apply(self, event: SweepEvent, number: int = 0) -> Trial | None:
        """Take in the next event.

        Args:
            number: of its record; 0 if it is not recorded yet.

        Returns:
            The trial after the event; None if it changes none (a duplicate, or late).

        Raises:
            AutomlError: the event cannot follow the earlier ones.
        """
        self.number = max(self.number, number)
        if not isinstance(event, Report):
            self.seconds = max(self.seconds, getattr(event, "at", 0.0))
        if isinstance(event, OF_TRIALS):
            return self._apply_to_trial(event)
        if isinstance(event, (Created, SpecChanged)):
            self.spec = SweepSpec.from_dict(event.spec)
            if isinstance(event, Created):
                self.environment = event.environment
        elif isinstance(event, Closed):
            self.closed, self.reason = event.state, event.reason
        elif isinstance(event, Command):
            self._command(event, number)
        elif isinstance(event, Answered):
            self.requests.pop(event.command, None)
        return None

    def _apply_to_trial(self, event: TrialEvent) -> Trial | None:
        trials, number = self.trials, event.trial
        if number > len(trials):
            raise StoreError(f"the next trial of the sweep is {len(trials)}, got {number}")
        before = trials[number] if number < len(trials) else None
        after = fold(before, event)
        if after is None or after is before:
            return None
        trials[number : number + 1] = [after]  # the next one is added
        self.index.update(after)
        if isinstance(event, Report):
            self._check_target(after)
            return after
        if isinstance(event, Begun):
            self._attempts[number] = (event.at, event.slots)
            self._begin_sum += event.at * event.slots
            self.busy_slots += event.slots
        elif isinstance(event, Ended):
            self._end(after, event.outcome.seconds)
        elif isinstance(event, Moved) and before and before.state is TrialState.RUNNING:
            self._end(after, event.seconds)
        elif isinstance(event, Proposed) and event.command is not None:
            self.requests.pop(event.command, None)
        if after.state is TrialState.WAITING or isinstance(event, Begun):
            self.closed, self.reason = "interrupted", ""
        self._evaluate(after)
        return after

    def _evaluate(self, trial: Trial) -> None:
        """Note the value of a trial, once it is finished."""
        spec = self.spec
        if trial.state.finished:
            self.values[trial.number] = ranking.value(trial, spec.goals[0], spec.constraints)

    def _command(self, command: Command, number: int) -> None:
        if command.kind == "stop":
            self.stop_number = number
        elif command.kind == "limits":
            limits = {**self.limits, **command.content}
            self.limits = {name: limit for name, limit in limits.items() if limit is not None}
        else:
            self.requests[number] = command


INFEASIBLE: Final = "infeasible"  # the outcome of a trial that has ended and violates a constraint


@dataclass(frozen=True)
class Snapshot:
    """The present state of a sweep.

    Args:
        sweep: its name.
        state: "running", "finished", "interrupted" or "failed".
        seconds: wall-clock seconds of the sweep so far, including earlier runs.
        num_slots, busy_slots: of the workers; 0 if no controller runs.
        suggesting: activity of the suggester ("idle", "suggesting", "2 ready").
        gain: by which going on is expected to improve the recommendation at most, noise included;
            None if it is not known.
        error: standard error of the recommendation, likewise.
        suggestion_seconds: how long each of the latest suggestions took.
        brief: the sweep is held for a moment only, to answer agents or people (`control.attend`).
        dashboard: address of the Ray dashboard, "" if there is none.
        reason: why it does not run any more; "" while it runs, and if that is not known.
        share: of the budget that is used, from 0 to 1; None without a limit.
        events: that came since the snapshot before, for those who follow the sweep.
        spec: of the sweep; None if it is not known.
        values: of finished trials for the first goal, by number, if they are known.
    """

    sweep: str
    state: str
    trials: Sequence[Trial]
    goals: tuple[Goal, ...]
    constraints: tuple[Constraint, ...] = ()
    budget: Budget = field(default_factory=Budget)
    seconds: float = 0.0
    num_slots: int = 0
    busy_slots: int = 0
    suggesting: str = "idle"
    gain: float | None = None
    error: float | None = None
    suggestion_seconds: Sequence[float] = ()
    brief: bool = False
    dashboard: str = ""
    share: float | None = None
    events: Sequence[SweepEvent] = ()
    spec: SweepSpec | None = None
    reason: str = ""
    values: Mapping[int, float | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, state: SweepState, shown: str, seconds: float, **status: Any) -> Snapshot:
        """The sweep of a state.

        Args:
            shown: state that people see.
            seconds: of the sweep so far; status: further fields.
        """
        spec = state.spec
        is_limited = spec.budget.spent() is not None
        share = state.spent(seconds, len(state.index.known)) if is_limited else None
        return cls(
            spec.name,
            shown,
            tuple(state.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            seconds,
            reason=state.reason if shown == state.closed else "",  # else it is of an earlier end
            share=share,
            spec=spec,
            values=state.values,
            **status,
        )

    def value(self, trial: Trial, index: int = 0) -> float | None:
        """The value of a trial for a goal; None if it has none."""
        if index == 0 and trial.state.finished and trial.number in self.values:
            return self.values[trial.number]
        return ranking.value(trial, self.goals[index], self.constraints)

    @property
    def best(self) -> Trial | None:
        """The best trial so far by the first goal; None if none has succeeded."""
        scored = ((self.value(trial), trial) for trial in self.trials)
        losses = [
            (self.goals[0].loss(value), trial) for value, trial in scored if value is not None
        ]
        return min(losses, key=lambda item: item[0])[1] if losses else None

    @property
    def pareto(self) -> list[Trial]:
        """The trials on the Pareto front of all goals, by number."""
        return ranking.pareto(self.trials, self.goals, self.constraints)

    @property
    def for_agents(self) -> bool:
        """Whether agents have run the newest trials, or alone know what a trial is."""
        if self.trials:
            return self.trials[-1].worker.startswith(AGENT)
        spec = self.spec
        own = spec is not None and spec.workload is None and not spec.origin.command
        return own and not self.reason  # a controller that has ended says why

    def outcome(self, trial: Trial) -> str:
        """The state of a trial, or `INFEASIBLE` if it has ended and violates a constraint."""
        ended = trial.state in (TrialState.COMPLETED, TrialState.STOPPED)
        kept = all(constraint.holds(trial.metrics) for constraint in self.constraints)
        return INFEASIBLE if ended and not kept and self.value(trial) is None else str(trial.state)

    def counts(self) -> Counter[str]:
        """Number of trials of each outcome."""
        return Counter(map(self.outcome, self.trials))

    def trajectory(self) -> list[float]:
        """The best value after each finished trial that has one, in order of their ends."""
        ends = sorted(
            (trial.ended or 0.0, trial.number, value)
            for trial in self.trials
            if trial.state.finished and (value := self.value(trial)) is not None
        )
        better = max if self.goals[0].maximize else min
        return list(accumulate((value for *_, value in ends), better))

    @property
    def changed(self) -> list[Trial]:
        """The trials that `events` have changed, as they are now, by number."""
        numbers = {event.trial for event in self.events if isinstance(event, TrialEvent)}
        return [self.trials[number] for number in sorted(numbers)]

    def in_state(self, *states: TrialState) -> list[Trial]:
        """The trials that are in one of these states."""
        return [trial for trial in self.trials if trial.state in states]
