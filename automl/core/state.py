"""The state of a sweep and its trials: the fold of its log. No file, no clock, nothing random.

Folding is idempotent: a duplicate, or an event of an attempt that is over, changes nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from automl.errors import AutomlError, StoreError
from workers.protocol import Asked, Ending, Metrics, Outcome, Report

from . import ranking
from .events import (
    OF_TRIALS,
    Answered,
    Begun,
    Closed,
    Command,
    Created,
    Ended,
    Leased,
    Moved,
    Proposed,
    SpecChanged,
    SweepEvent,
    TrialEvent,
)
from .goals import Constraint, Goal
from .resources import Budget
from .spec import SweepSpec
from .trial import (
    AGENT,
    ANEW,
    ReportLog,
    ReportPoint,
    Trial,
    TrialState,
    check_transition,
    without_held,
)

ENQUEUE: Final = "enqueue"  # the kind of the command that gives a configuration to try


class TrialIndex:
    """The trials of a sweep by state.

    Attributes:
        known: finished, paused and interrupted trials, by number.
        held: numbers of those that people have paused.
    """

    def __init__(self) -> None:
        self.known: list[Trial] = []
        self.held: set[int] = set()
        self._open: dict[int, Trial] = {}  # waiting and running

    @property
    def pending(self) -> list[Trial]:
        """Waiting and running trials, by number."""
        return [self._open[number] for number in sorted(self._open)]

    @property
    def running(self) -> list[Trial]:
        """Running trials, in no order."""
        return [trial for trial in self._open.values() if trial.state is TrialState.RUNNING]

    @property
    def leased(self) -> list[tuple[Trial, Leased]]:
        """Running trials that agents hold, with their leases, in no order."""
        return [(trial, trial.lease) for trial in self.running if trial.lease is not None]

    @property
    def waiting(self) -> list[Trial]:
        """Waiting trials, by number."""
        return [trial for trial in self.pending if trial.state is TrialState.WAITING]

    @property
    def next_waiting(self) -> Trial | None:
        """The waiting trial with the lowest number."""
        return next(iter(self.waiting), None)

    def update(self, trial: Trial) -> None:
        """Add a new trial, or replace one that has changed."""
        number, known = trial.number, self.known
        self._open.pop(number, None)
        self.held.discard(number)
        place = len(known)
        if known and known[-1].number >= number:
            place = bisect_left(known, number, key=lambda one: one.number)
        replaced = place < len(known) and known[place].number == number
        is_open = trial.state in (TrialState.WAITING, TrialState.RUNNING)
        known[place : place + replaced] = [] if is_open else [trial]
        if is_open:
            self._open[number] = trial
        elif trial.held:
            self.held.add(number)


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
        unrecorded: events that were applied and wait for their record, in order.
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
        self.unrecorded: list[SweepEvent] = []

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
            number: of its record; 0 if it is not recorded yet. Then it is kept in `unrecorded`,
                unless it changes nothing about its trial (a duplicate, or late).

        Returns:
            The trial after the event; None if it changes none.

        Raises:
            AutomlError: the event cannot follow the earlier ones.
        """
        self.number = max(self.number, number)
        if not isinstance(event, Report):
            self.seconds = max(self.seconds, getattr(event, "at", 0.0))
        after, is_new = None, number == 0
        if isinstance(event, OF_TRIALS):
            after = self._apply_to_trial(event)
            is_new = is_new and after is not None
        elif isinstance(event, (Created, SpecChanged)):
            self.spec = SweepSpec.from_dict(event.spec)
            if isinstance(event, Created):
                self.environment = event.environment
        elif isinstance(event, Closed):
            self.closed, self.reason = event.state, event.reason
        elif isinstance(event, Command):
            self._command(event, number)
        elif isinstance(event, Answered):
            self.requests.pop(event.command, None)
        if is_new:
            self.unrecorded.append(event)
        return after

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


def fold(trial: Trial | None, event: SweepEvent) -> Trial | None:
    """The trial after the event; the same object if the event changes nothing.

    Raises:
        AutomlError: the event cannot follow the earlier events of the trial.
    """
    if not isinstance(event, OF_TRIALS):
        return trial
    if isinstance(event, Proposed):
        return trial or Trial(
            event.trial,
            dict(event.params),
            source=event.source,
            replicate_of=event.replicate_of,
        )
    if trial is None:
        raise AutomlError(f"trial {event.trial} was never proposed, got {type(event).__name__}")
    if isinstance(event, Begun):
        return _begin(trial, event)
    if isinstance(event, Moved):
        return _move(trial, event)
    attempt = event.outcome.attempt if isinstance(event, Ended) else event.attempt
    if trial.state is not TrialState.RUNNING or attempt != trial.attempts:
        return trial
    if isinstance(event, Report):
        return _report(trial, event)
    if isinstance(event, Asked):
        return _ask(trial, event)
    if isinstance(event, Ended):
        return _end(trial, event)
    if isinstance(event, Leased):
        return _changed(trial, lease=event)
    if event.worker in ("", trial.worker):
        return trial
    return _changed(trial, worker=event.worker)


def lineage(points: ReportLog, point: ReportPoint) -> ReportLog:
    """Add a report, in order of attempt and sequence; the same log if it is a duplicate.

    The first report of a later attempt removes earlier reports from that step on: they were made
    after the checkpoint from which the attempt resumed.
    """
    last = points.last
    if last is not None and last.attempt < point.attempt:
        kept = [known for known in points if known.step < point.step]
        points = points if len(kept) == len(points) else ReportLog(kept)
        last = points.last
    if last is None or last.key < point.key:
        return points.with_added(point)
    place = bisect_left(points, point.key, key=lambda known: known.key)
    if points[place].key == point.key:
        return points
    return ReportLog((*points[:place], point, *points[place:]))


def reported(points: Iterable[ReportPoint]) -> dict[str, float]:
    """The newest value of every reported metric."""
    return {metric: value for point in points for metric, value in point.metrics.items()}


def final_metrics(trial: Trial, outcome: Outcome) -> Metrics:
    """Reported metrics updated by returned ones, and the controller's own if they are missing."""
    metrics = {**reported(trial.reports), **outcome.metrics}
    measured = {
        "seconds": outcome.seconds + (0.0 if outcome.details.get(ANEW) else trial.seconds),
        "peak_memory_bytes": _peak(trial, outcome),
        "estimated_memory_bytes": outcome.estimated_memory_bytes,
    }
    own = {n: float(v) for n, v in measured.items() if v is not None and n not in metrics}
    return metrics | own


def _changed(trial: Trial, **fields: Any) -> Trial:
    """The trial with other values of some fields: `dataclasses.replace` in a fifth of the time."""
    changed = object.__new__(Trial)
    vars(changed).update(vars(trial), **fields)
    return changed


def _peak(trial: Trial, outcome: Outcome) -> int | None:
    peaks = (trial.peak_memory_bytes, outcome.peak_memory_bytes)
    return max((peak for peak in peaks if peak is not None), default=None)


def _begin(trial: Trial, event: Begun) -> Trial:
    if event.attempt <= trial.attempts:
        return trial
    if event.attempt != trial.attempts + 1:
        raise AutomlError(
            f"attempt {event.attempt} of trial {trial.number} cannot follow attempt "
            f"{trial.attempts}: one is missing"
        )
    check_transition(trial.state, TrialState.RUNNING)
    return _changed(
        trial,
        state=TrialState.RUNNING,
        attempts=event.attempt,
        started=event.at if trial.started is None else trial.started,
        held=False,
        returned=(),
    )


def _report(trial: Trial, event: Report) -> Trial:
    point = ReportPoint(event.step, event.metrics, event.seconds, event.attempt, event.sequence)
    points = lineage(trial.reports, point)
    if points is trial.reports:
        return trial
    in_order = len(points) == len(trial.reports) + 1 and points.last is point
    metrics = {**trial.metrics, **event.metrics} if in_order else reported(points)
    return _changed(trial, reports=points, metrics=metrics)


def _ask(trial: Trial, event: Asked) -> Trial:
    name, asked = event.parameter["name"], {**event.parameter, "line": event.line}
    if (trial.asked or {}).get(name) == asked and trial.params[name] == event.params[name]:
        return trial
    params, ranges = {**trial.params, **event.params}, {**(trial.asked or {}), name: asked}
    return _changed(trial, params=params, asked=ranges)


def _end(trial: Trial, event: Ended) -> Trial:
    check_transition(trial.state, event.state)
    outcome = event.outcome
    is_retried = event.state is TrialState.WAITING and outcome.ending is Ending.FAILED
    estimated = outcome.estimated_memory_bytes
    params = trial.params
    if trial.asked is not None and event.state.finished:  # what nobody asked for had no effect
        params = {name: params[name] for name in trial.asked}
    return _changed(
        trial,
        params=params,
        state=event.state,
        metrics=final_metrics(trial, outcome),
        returned=tuple(outcome.metrics),
        failure=event.failure if event.state is TrialState.FAILED else None,
        message=event.message,
        seconds=trial.seconds + outcome.seconds,
        peak_memory_bytes=_peak(trial, outcome),
        ended=event.at if event.state.finished else None,
        details={**trial.details, **outcome.details},
        retries=trial.retries + is_retried,
        held=outcome.held,
        pruned=outcome.pruned,
        lease=None,
        cause=outcome.cause,
        exit_status=outcome.exit_status,
        exception=outcome.exception or trial.exception,
        raised_at=outcome.raised_at,
        estimated_memory_bytes=trial.estimated_memory_bytes if estimated is None else estimated,
    )


def _move(trial: Trial, event: Moved) -> Trial:
    if event.state is trial.state:
        return trial
    check_transition(trial.state, event.state)
    return _changed(
        trial,
        state=event.state,
        lease=None,
        message=event.reason,
        seconds=trial.seconds + event.seconds,
        ended=event.at if event.state.finished else None,
    )


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
        """The best by the first goal, of equals by the next ones; None if none has succeeded."""
        scored = [trial for trial in self.trials if self.value(trial) is not None]
        return min(scored, key=self.losses, default=None)

    def losses(self, trial: Trial) -> list[float]:
        """The loss of a trial by goal; infinite if it has no value."""
        found = [(goal, self.value(trial, i)) for i, goal in enumerate(self.goals)]
        return [math.inf if value is None else goal.loss(value) for goal, value in found]

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
