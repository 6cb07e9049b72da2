"""How a sweep goes on: decisions become events, are committed together, then take effect.

What a controller, an `Optimizer` or an import decides is built here. But commands are built by
those who send them (`workflows`), `Started` and `Report` by those who run an attempt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from automl.core import (
    ANEW,
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
    Trial,
    TrialState,
    final_metrics,
)
from automl.core.arguments import json_data
from automl.dispatch.base import Dispatcher
from automl.dispatch.inline import AgentsDispatcher
from workers.protocol import Ending, Outcome, Params, StopRequest

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
        trial = self.state.apply(event)
        self._events.append(event)
        if self.state.unrecorded:
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
        changed = bool(self.state.unrecorded and late)
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
