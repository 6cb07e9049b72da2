"""How a sweep goes on: decisions become events, are committed together, then take effect.

What a controller, an `Optimizer` or an import decides is built here. But commands are built by
those who send them (`workflows`), `Started` and `Report` by those who run an attempt.

A sweep ends, or begins no new trial, for these reasons only:

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| no trial has a metric that a constraint bounds | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
| the first signal (Ctrl-C, SIGTERM), a suggester that fails | running trials are interrupted |

An interrupted sweep can be resumed. At the second signal, or after 30 s, running trials are killed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from automl.core import (
    ANEW,
    GRACE_SECONDS,
    Answered,
    Begun,
    Closed,
    Ended,
    Goal,
    Moved,
    Noted,
    Proposed,
    SpecChanged,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
    TrialState,
    final_metrics,
)
from automl.core.arguments import json_data
from automl.core.text import mistake_hint
from automl.dispatch.base import Dispatcher
from automl.dispatch.inline import AgentsDispatcher
from automl.errors import AutomlError
from automl.suggesters.queue import SuggestionQueue
from workers.protocol import Ending, Outcome, Params, StopRequest

from .machine import StopSignals

if TYPE_CHECKING:
    from automl.ledger import Hold, Ledger

COMMIT_SECONDS: Final = 0.25  # how long an event of an attempt inside `poll` waits at most
HEARTBEAT_SECONDS: Final = 1.0
SHOW_SECONDS: Final = 0.5


class Journal:
    """Applies decisions to a sweep that this process holds, commits them, and runs the effects.

    A decision takes effect only after it and the events that led to it are committed. So a
    controller that is killed at any instant has done nothing that the ledger does not know. Used
    from one thread.

    Args:
        hold: on the sweep.
        clock: returns the seconds of the sweep.
        status: returns what is stored beside the events, for those who watch the sweep.
        observe: called with each trial that has changed.
        show: called with the new events after each commit, and at least every half second.

    Attributes:
        state: the sweep, with everything that was applied; trials: its trials by number.
            Do not change them.
        dispatcher: of the sweep; one without slots before `attach`.
        closed: whether this run of the sweep has ended.
    """

    def __init__(
        self,
        hold: Hold,
        clock: Callable[[], float],
        *,
        status: Callable[[], Mapping[str, Any] | None] = lambda: None,
        observe: Callable[[Trial], object] = lambda trial: None,
        show: Callable[[Sequence[SweepEvent]], object] = lambda events: None,
    ) -> None:
        self.hold = hold
        self.state, self.trials = hold.state, hold.state.trials
        self.dispatcher: Dispatcher = AgentsDispatcher()
        self.closed = False
        self._clock, self._status = clock, status
        self._observe, self._show = observe, show
        self._effects: list[Callable[[], None]] = []
        self._events: list[SweepEvent] = []  # since the sweep was shown last
        self._committed = self._shown = -math.inf
        self._oldest = math.inf  # when the oldest event that is not committed came

    @property
    def spec(self) -> SweepSpec:
        """The specification of the sweep."""
        return self.state.spec

    @property
    def now(self) -> float:
        """Seconds of the sweep, including its earlier runs."""
        return self._clock()

    def attach(self, dispatcher: Dispatcher) -> None:
        """The dispatcher has started: its clock is the sweep's from now on."""
        begun, self.dispatcher = self.now, dispatcher
        self._clock = lambda: begun + dispatcher.now()

    # what is decided

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes none."""
        trial = self.hold.apply(event)
        self._events.append(event)
        if self.hold.uncommitted:
            self._oldest = min(self._oldest, time.monotonic())
        if trial is not None:
            self._observe(trial)
        return trial

    def propose(
        self,
        params: Params,
        source: str,
        command: int | None = None,
        replicate_of: int | None = None,
    ) -> Trial:
        """A configuration becomes the next trial.

        Args:
            command: number of the command that asked for it.
            replicate_of: number of the trial whose configuration runs again.
        """
        number = len(self.trials)
        return self._changed(
            Proposed(number, dict(params), source, self.now, command, replicate_of)
        )

    def begin(self, trial: Trial, slots: int = 1) -> Trial:
        """The next attempt of a trial begins and takes this many slots."""
        return self._changed(Begun(trial.number, trial.attempts + 1, self.now, slots))

    def move(self, trial: Trial, state: TrialState, reason: str) -> Trial:
        """A trial changes its state without an outcome."""
        seconds = self.seconds_running(trial) if trial.state is TrialState.RUNNING else 0.0
        return self._changed(Moved(trial.number, state, reason, self.now, seconds))

    def answer(self, number: int, content: Mapping[str, Any], trial: int | None = None) -> None:
        """Answer a request, the number of whose record this is."""
        self.apply(Answered(number, json_data(content), trial, self.now))

    def note(self, kind: str, message: str, trial: int | None = None) -> None:
        """Record a note, about a trial or the sweep."""
        self.apply(Noted(kind, message, trial, self.now))

    def specify(self, spec: SweepSpec) -> None:
        """Go on with another specification."""
        if spec != self.spec:
            self.apply(SpecChanged(spec.to_dict(), at=self.now))
        self.state.spec = spec  # its dictionary has less

    def seconds_running(self, trial: Trial) -> float:
        """How long the running attempt of a trial has taken until now."""
        return max(0.0, self.now - self.state.begun(trial.number))

    def _changed(self, event: SweepEvent) -> Trial:
        trial = self.apply(event)
        assert trial is not None
        return trial

    # what is committed

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` once all events so far are committed."""
        self._effects.append(effect)

    def commit(self) -> None:
        """Commit what was decided, with a heartbeat."""
        self._committed = time.monotonic()
        self.hold.commit(self.now, status=self._status())
        self._oldest = math.inf

    def flush(self, patience: float = 0.0) -> None:
        """Commit if there is something, or for a heartbeat; run the effects; show the sweep.

        Args:
            patience: for so many seconds an event waits for others, if no effect waits for it.
        """
        now = time.monotonic()
        late = self._effects or now - self._oldest >= patience
        changed = bool(self.hold.uncommitted and late)
        if changed or now - self._committed > HEARTBEAT_SECONDS:
            self.commit()
        effects, self._effects = self._effects, []
        for effect in effects:
            effect()
        if changed or now - self._shown > SHOW_SECONDS:
            self._tell()

    def close(self, state: str, reason: str = "") -> None:
        """Commit for the last time, with the final state of the sweep; drops pending effects."""
        self._effects.clear()
        self.closed = True
        if state != self.state.closed or reason not in ("", self.state.reason):
            self.apply(Closed(state, reason, at=self.now))
        self.commit()
        self._tell()

    def _tell(self) -> None:
        self._shown = time.monotonic()
        events, self._events = self._events, []
        self._show(events)


@contextmanager
def writing(ledger: Ledger, sweep: str) -> Iterator[Journal]:
    """Hold a sweep that no controller runs; what is written inside is committed together.

    Raises:
        StoreError: a controller holds the sweep.
    """
    hold = ledger.hold(sweep)
    try:
        journal = Journal(hold, lambda: hold.seconds)
        yield journal
        journal.commit()
    finally:
        ledger.release(sweep)


Decided = tuple[TrialState, str | None, str]  # the next state, the failure and the message


def ended(
    spec: SweepSpec, trial: Trial, outcome: Outcome, at: float, stopping: StopRequest | None = None
) -> Ended:
    """The event that ends the running attempt of a trial.

    A completed trial without a finite value for each goal has failed. A trial is retried up to
    `max_retries` times if its configuration did not cause the failure; one that was told in time
    that its machine is taken away goes on without a limit.

    Args:
        at: seconds since the sweep began.
        stopping: how the sweep itself is ending, None if it goes on. Meanwhile no trial is retried,
            and one whose worker was killed is stopped or interrupted instead of failed.
    """
    # An attempt that begins anew replaces the reports of those before it, see `lineage`.
    goes_on = trial.reports and trial.reports[0].attempt < outcome.attempt
    if trial.seconds and not goes_on:
        outcome = replace(outcome, details={**outcome.details, ANEW: True})
    state = TrialState(outcome.ending.value)  # each ending has a state of the same name
    found: Decided = state, None, outcome.message
    if state is TrialState.FAILED:
        found = _failed(trial, outcome, spec, stopping)
    elif state is TrialState.INTERRUPTED and stopping is not StopRequest.INTERRUPT:
        # Its worker's machine is taken away, with notice: what it has done is saved.
        found = TrialState.WAITING, "preempted", outcome.message
    elif state is TrialState.PAUSED and stopping is StopRequest.STOP:
        found = _checked(TrialState.STOPPED, trial, outcome, spec.goals)
    elif state in (TrialState.COMPLETED, TrialState.STOPPED):
        found = _checked(state, trial, outcome, spec.goals)
    return Ended(outcome, *found, at)


def fail(journal: Journal, trial: Trial, failure: str, message: str, **facts: Any) -> None:
    """An attempt ends before a worker has it, or is lost; `facts` are of its outcome."""
    outcome = Outcome(
        trial.number, trial.attempts, Ending.FAILED, failure=failure, message=message, **facts
    )
    journal.apply(ended(journal.spec, trial, outcome, journal.now))


def _failed(
    trial: Trial, outcome: Outcome, spec: SweepSpec, stopping: StopRequest | None
) -> Decided:
    failure, message = outcome.failure or "crashed", outcome.message
    if stopping is not None and outcome.worker_lost:
        is_resumable = stopping is StopRequest.INTERRUPT
        return TrialState.INTERRUPTED if is_resumable else TrialState.STOPPED, None, message
    if failure == "preempted" or (failure == "crashed" and outcome.worker_lost):
        if trial.retries < spec.max_retries:
            message = f"{message} (retry {trial.retries + 1} of {spec.max_retries})"
            return TrialState.WAITING, failure, message
        return TrialState.FAILED, failure, f"{message} (after {trial.retries} retries)"
    if failure == "crashed" and trial.reports and trial.reports[-1].attempt < outcome.attempt:
        _, failed, _ = _checked(TrialState.COMPLETED, trial, outcome, spec.goals)
        if failed is None:  # earlier attempts have reported every goal, and this one nothing
            said = f"could not go on, so its last report counts: {message}"
            return TrialState.STOPPED, None, said
    return TrialState.FAILED, failure, message


def _checked(state: TrialState, trial: Trial, outcome: Outcome, goals: Sequence[Goal]) -> Decided:
    metrics = final_metrics(trial, outcome)
    missing = [goal.metric for goal in goals if goal.metric not in metrics]
    if missing and state is TrialState.COMPLETED:
        reported = ", ".join(sorted(metrics)) or "none"
        names = ", ".join(map(repr, missing))
        message = f"no metric {names} was reported; these were: {reported}"
        return TrialState.FAILED, "missing_metric", message
    for goal in goals:
        if not math.isfinite(metrics.get(goal.metric, 0.0)):
            return TrialState.FAILED, "non_finite", f"{goal.metric} is {metrics[goal.metric]}"
    return state, None, outcome.message


USED_UP: Final = "its budget is used up"
MAX_ALIKE: Final = 3  # failures, if nothing has succeeded
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def reason_of_failures(state: SweepState, failed: Trial, since: float) -> str:
    """Why the sweep must end after this trial, if failures like it are all that has come so far.

    A success since the first of them is an answer, except to a kill from outside or a full disk. A
    trial that runs may still succeed if it has reported, or has outlived a later one.

    Args:
        since: when this run of the sweep began; earlier failures do not count.
    """
    outside, succeeded = failed.ended_from_outside, any(map(_has_succeeded, state.trials))
    mistake = failed.is_mistake and not succeeded
    if failed.state is not TrialState.FAILED or not (mistake or outside):
        return ""
    ended = [trial for trial in state.trials if trial.ended is not None and trial.ended >= since]
    ended.sort(key=lambda trial: trial.ended or 0.0, reverse=True)
    row = takewhile(lambda trial: not _has_succeeded(trial), ended)
    same = [one for one in row if one.state is TrialState.FAILED and one.error == failed.error]
    alike = sum(trial.attempts if trial.died_by_itself else 1 for trial in same)
    running = state.index.running
    if alike < MAX_ALIKE or any(one.reports or one.number < failed.number for one in running):
        return ""
    failures = "attempts" if failed.died_by_itself else "trials"
    between = " in between" if succeeded else ""
    words = f"{alike} {failures} failed alike and none succeeded{between}"
    return f"{words}: {failed.message}. {mistake_hint(failed)}".rstrip()


def reason_of_constraints(state: SweepState) -> str:
    """Why it must end if the first completed trials lack a metric that a constraint bounds.

    A trial that was imported says nothing.
    """
    first = [one for one in state.trials if one.state is TrialState.COMPLETED and one.seconds > 0]
    known = {name for trial in first for name in trial.metrics}
    lacking = [str(one) for one in state.spec.constraints if one.metric not in known]
    return (
        f"{MAX_ALIKE} trials have completed, and none has the metric of the constraint "
        f"{lacking[0]}; they have {', '.join(sorted(known))}"
        if lacking and len(first) == MAX_ALIKE
        else ""
    )


def reason_for_none(
    state: SweepState,
    suggestions: SuggestionQueue,
    slots: Callable[[Mapping[str, Any]], int],
    now: float,
) -> str:
    """Why no new trial begins; "" if one may.

    Args:
        suggestions: know what another trial may gain, and whether the space is exhausted.
        slots: returns how many slots a configuration takes.
    """
    budget = state.spec.budget
    if state.trials_left == 0:
        return USED_UP
    if suggestions.exhausted:
        if not state.spec.space.parameters:
            return (
                "no space was given, and its objective asks for no parameter (trial.suggest_float)"
            )
        if limits := ", ".join(state.limits):
            return f"every configuration within its limits was tried; the limits are on {limits}"
        return "every configuration of its space was tried"
    if budget.until == "settled" and (at := suggestions.settled()):
        return (
            "the recommendation is settled: going on is expected to improve it by at most "
            f"{at.gain:.2g}, and its standard error is {at.error:.2g}"
        )
    return reason_of_time(state, slots, now)


def reason_of_time(state: SweepState, slots: Callable[[Mapping[str, Any]], int], now: float) -> str:
    """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
    waiting = state.index.next_waiting
    reason = state.reason_to_begin_none(now, slots(waiting.params) if waiting else 1)
    return f"no further trial begins: {reason}" if reason else ""


def _has_succeeded(trial: Trial) -> bool:
    # A trial that was imported or never began says nothing.
    return trial.state in _SUCCESSES and trial.seconds > 0


class Shutdown:
    """Asks trials to stop, one or all, and leaves each in the right state.

    Args:
        journal: of the sweep.
        taken: number of the last record when the sweep was taken.
        signals: count the signals that ask the sweep to stop.

    Attributes:
        request: how the sweep is ending; None while it goes on.
        reason: why.
    """

    def __init__(self, journal: Journal, taken: int, signals: StopSignals) -> None:
        self._journal, self._signals = journal, signals
        self._taken, self._began = taken, journal.now
        # Of running trials that were asked to stop: why, and whether a person has asked to pause.
        self._asked: dict[int, tuple[str, bool]] = {}
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self.request: StopRequest | None = None
        self.reason = ""

    def check(self) -> None:
        """Begin to end the sweep if it must end; kill running trials if they take too long."""
        journal = self._journal
        if self._signals.count and self.request is not StopRequest.INTERRUPT:
            self._begin(StopRequest.INTERRUPT, "interrupted")
        asked = journal.state.stop_number > self._taken  # not before this run of the sweep
        reason = journal.state.reason_to_end(journal.now)
        self.end("it was asked to stop" if asked else reason)
        if self._signals.count > 1 or time.monotonic() > self._deadline:
            message = "ended by force, together with the sweep"
            for trial in journal.state.index.running:
                if trial.lease is None:
                    journal.dispatcher.kill(trial.number, trial.attempts, "preempted", message)
                elif self.request is StopRequest.STOP:
                    journal.move(trial, TrialState.STOPPED, "its agent has not ended it in time")

    def stay(self) -> None:
        """The sweep is finished already, and is held only to answer agents and people."""
        self.request = StopRequest.STOP
        self.reason = "it is finished"

    def reopen(self) -> None:
        """A finished sweep goes on."""
        self.request = None

    def end(self, reason: str) -> None:
        """Finish the sweep if there is a reason, unless it is ending already."""
        if reason and self.request is None:
            self._begin(StopRequest.STOP, reason)

    def end_after(self, ended: Trial) -> None:
        """Finish the sweep if a trial that has ended is one failure too many."""
        self.end(
            reason_of_failures(self._journal.state, ended, self._began)
            or reason_of_constraints(self._journal.state)
        )

    def fail(self, error: AutomlError) -> None:
        """End the sweep by this error, which `finish` raises."""
        self._error = error
        self._begin(StopRequest.INTERRUPT, str(error))

    def stop_trial(
        self, trial: Trial, how: StopRequest, reason: str, *, held: bool = False
    ) -> None:
        """Ask a running trial to stop.

        Args:
            held: a person asks for a pause, so only a person resumes the trial.
        """
        journal = self._journal
        if trial.lease is not None:  # its agent learns it with its next report
            lease = replace(trial.lease, asked=how, reason=reason, held=held, at=journal.now)
            journal.apply(lease)
            return
        self._asked[trial.number] = (reason, held)
        journal.then(lambda: journal.dispatcher.stop(trial.number, trial.attempts, how))

    def is_stopping(self, trial: Trial) -> bool:
        """Whether a running trial was asked to stop."""
        return trial.number in self._asked or bool(trial.lease and trial.lease.asked)

    def explain(self, outcome: Outcome) -> Outcome:
        """The outcome of a trial that was asked to stop, with the reason as its message."""
        reason, held = self._asked.pop(outcome.trial, ("", False))
        held = outcome.held or (held and outcome.ending is Ending.PAUSED)
        obeyed = outcome.ending in (Ending.STOPPED, Ending.PAUSED)
        return replace(outcome, message=outcome.message or (reason if obeyed else ""), held=held)

    def finish(self, reason: str) -> None:
        """Nothing runs any more: close the journal, with final states unless it can be resumed.

        Args:
            reason: why no trial begins, if nothing else has ended the sweep.

        Raises:
            AutomlError: the error that has ended the sweep.
        """
        if self._error is not None:
            raise self._error
        if self.request is StopRequest.INTERRUPT:
            self._journal.close("interrupted", self.reason)
            return
        for trial in list(self._journal.trials):
            if not trial.state.finished and trial.lease is None:
                self._journal.move(trial, TrialState.STOPPED, "the sweep has ended")
        self._journal.close("finished", self.reason or reason)

    def abandon(self, state: str, reason: str) -> None:
        """The controller fails: record that it is gone, if the ledger can still be written to."""
        with suppress(AutomlError):
            for trial in self._journal.state.index.running:
                if trial.lease is None:
                    self._journal.move(trial, TrialState.INTERRUPTED, "its controller failed")
            self._journal.close(state, reason)

    def _begin(self, how: StopRequest, reason: str) -> None:
        self.request = how
        self.reason = reason
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._journal.note("end", reason)
        for trial in self._journal.state.index.running:
            if trial.lease is None or how is StopRequest.STOP:  # agents go on without a controller
                self.stop_trial(trial, how, reason)
