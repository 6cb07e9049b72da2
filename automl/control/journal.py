"""Decisions about a sweep become events; they are committed together, then take effect.

Each kind of event is built here, and nowhere else. But commands are built by those who send them
(`workflows`), `Started` and `Report` by those who run an attempt, and `Ended` by the policy on
outcomes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from automl.core import (
    Answered,
    Begun,
    Closed,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    Snapshot,
    SpecChanged,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
    TrialState,
)
from automl.core.arguments import json_data
from automl.core.trial import ANEW, AgentLease, without_held
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from automl.suggesters.queue import SuggestionQueue
from workers.protocol import Ending, Outcome, Params, Report, StopRequest

from .outcome_policy import OutcomePolicy

if TYPE_CHECKING:
    from automl.ledger import Ledger, Recorder

COMMIT_SECONDS: Final = 0.25  # how long a report of an attempt inside `poll` waits at most
HEARTBEAT_SECONDS: Final = 1.0
SHOW_SECONDS: Final = 0.5
NUM_STORED_SECONDS: Final = 20  # of the latest suggestions, in the status of each commit


class SweepWriter:
    """Applies decisions to a sweep that this process holds. Used from one thread.

    Args:
        recorder: of the sweep.
        clock: returns the seconds of the sweep.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._said_steps = False

    @property
    def state(self) -> SweepState:
        """The sweep, with everything that was applied; do not change it."""
        return self._recorder.state

    @property
    def spec(self) -> SweepSpec:
        """The specification of the sweep."""
        return self._recorder.state.spec

    @property
    def trials(self) -> list[Trial]:
        """Every trial by number; do not change this list."""
        return self._recorder.state.trials

    @property
    def now(self) -> float:
        """Seconds of the sweep, including its earlier runs."""
        return self._clock()

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes none."""
        if isinstance(event, Report) and not self._said_steps:
            self._check_step(event)
        return self._recorder.apply(event)

    def _check_step(self, report: Report) -> None:
        """Note the first step that is lower than the one before: stoppers expect that they grow."""
        trial = self.trials[report.trial] if report.trial < len(self.trials) else None
        last = trial.reports[-1] if trial is not None and trial.reports else None
        if last is None or (report.attempt, report.sequence) <= (last.attempt, last.sequence):
            return  # it comes twice, or late
        if report.attempt == last.attempt and report.step < last.step:
            self._said_steps = True
            words = f"trial {report.trial} reports step {report.step} after step {last.step}"
            self.note("steps", f"{words}: count steps up, as curves and stoppers need it")

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

    def end(
        self,
        trial: Trial,
        outcome: Outcome,
        *,
        sweep_stop: StopRequest | None = None,
        hopeless: bool = False,
    ) -> Trial | None:
        """The running attempt of a trial ends; if it is `hopeless`, it is not tried again."""
        return self.apply(self.ended(trial, outcome, sweep_stop=sweep_stop, hopeless=hopeless))

    def ended(
        self,
        trial: Trial,
        outcome: Outcome,
        *,
        sweep_stop: StopRequest | None = None,
        hopeless: bool = False,
    ) -> Ended:
        """The event that `end` applies; see `OutcomePolicy.decide`."""
        # An attempt that begins anew replaces the reports of those before it, see `lineage`.
        goes_on = trial.reports and trial.reports[0].attempt < outcome.attempt
        if trial.seconds and not goes_on:
            outcome = replace(outcome, details={**outcome.details, ANEW: True})
        policy = OutcomePolicy(self.spec.goals, 0 if hopeless else self.spec.max_retries)
        return policy.decide(trial, outcome, self.now, sweep_stop=sweep_stop)

    def fail(self, trial: Trial, failure: str, message: str, **facts: Any) -> Trial | None:
        """An attempt ends before a worker has it, or is lost; `facts` are of its outcome."""
        outcome = Outcome(
            trial.number, trial.attempts, Ending.FAILED, failure=failure, message=message, **facts
        )
        return self.end(trial, outcome)

    def move(self, trial: Trial, state: TrialState, reason: str) -> Trial:
        """A trial changes its state without an outcome."""
        running = trial.state is TrialState.RUNNING
        seconds = self.seconds_running(trial) if running else 0.0
        return self._changed(Moved(trial.number, state, reason, self.now, seconds))

    def lease(self, trial: Trial, lease: AgentLease) -> None:
        """An agent holds the running attempt of a trial."""
        self.apply(Leased(trial.number, trial.attempts, **vars(lease), at=self.now))

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
        return max(0.0, self.now - self.state.use.begun(trial.number))

    def _closed(self, state: str, reason: str) -> None:
        """A controller ends its run of the sweep."""
        self.apply(Closed(state, reason, at=self.now))

    def _changed(self, event: SweepEvent) -> Trial:
        trial = self.apply(event)
        if trial is None:
            raise AutomlError(f"{event} changes nothing")
        return trial


@contextmanager
def writing(ledger: Ledger, sweep: str) -> Iterator[SweepWriter]:
    """Hold a sweep that no controller runs; what is written inside is committed together.

    Raises:
        StoreError: a controller holds the sweep.
    """
    recorder = ledger.acquire(sweep)
    try:
        yield SweepWriter(recorder, lambda: recorder.seconds)
        recorder.commit()
    finally:
        ledger.release(sweep)


class Journal(SweepWriter):
    """Commits what a controller has decided, runs the effects, and shows the sweep.

    A decision takes effect only after it and the events that led to it are committed. So a
    controller that is killed at any instant has done nothing that the ledger does not know.

    Args:
        recorder: writes the events of the sweep to the ledger.
        suggestions: their state is part of the sweep's status.
        seconds: wall-clock seconds of the sweep's earlier runs.
        observe: called with each trial that has changed.
        on_change: called with the sweep after each commit and at least every half second.
        brief: whether the sweep is held for a moment only.

    Attributes:
        waits_for: for whom the sweep waits before it begins a trial; "" if it does not.
    """

    def __init__(
        self,
        recorder: Recorder,
        suggestions: SuggestionQueue,
        *,
        seconds: float = 0.0,
        observe: Callable[[Trial], object] = lambda trial: None,
        on_change: Callable[[Snapshot], None] | None = None,
        brief: bool = False,
    ) -> None:
        super().__init__(recorder, self._seconds)
        self._earlier_seconds = seconds
        self._brief = brief
        self._suggestions = suggestions
        self._observe = observe
        self._on_change = on_change
        self.waits_for = ""
        self._dispatcher: Dispatcher | None = None
        self._shown_state = "running"
        self._effects: list[Callable[[], None]] = []
        self._events: list[SweepEvent] = []  # since the sweep was shown last
        self._committed = self._shown = -math.inf
        self._oldest = math.inf  # when the oldest event that is not committed came

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the sweep, once it has started."""
        assert self._dispatcher is not None
        return self._dispatcher

    def attach(self, dispatcher: Dispatcher) -> None:
        """The dispatcher has started: its clock is the sweep's from now on."""
        self._dispatcher = dispatcher

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes none."""
        trial = super().apply(event)
        self._events.append(event)
        if self._recorder.uncommitted:
            self._oldest = min(self._oldest, time.monotonic())
        if trial is not None:
            self._observe(without_held(trial))
        return trial

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store."""
        return self._recorder.clock()

    def look(self) -> None:
        """Take in what others have sent to the sweep, without waiting for the next commit."""
        self._recorder.look()

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` once all events so far are committed."""
        self._effects.append(effect)

    def flush(self) -> None:
        """Commit, with a heartbeat; then run the effects; then show the sweep."""
        changed = self._recorder.uncommitted > 0
        if changed or time.monotonic() - self._committed > HEARTBEAT_SECONDS:
            self._commit()
        effects, self._effects = self._effects, []
        for effect in effects:
            effect()
        self._show(changed)

    def settle(self, *, at_once: bool) -> None:
        """After an event of an attempt that runs inside `poll`: flush if something waits for it.

        A report alone is committed with later ones, after `COMMIT_SECONDS` (see `keep_up`).
        """
        now = time.monotonic()
        late = now - min(self._oldest, self._shown) > COMMIT_SECONDS
        if at_once or late or self._effects:
            self.flush()

    def keep_up(self) -> None:
        """Commit what has waited long enough, or a heartbeat; nothing takes effect by it."""
        now = time.monotonic()
        if now - self._oldest > COMMIT_SECONDS or now - self._committed > HEARTBEAT_SECONDS:
            self._commit()

    def close(self, state: str, reason: str = "") -> None:
        """Commit for the last time, with the final state of the sweep; drops pending effects."""
        self._shown_state = state
        self._effects.clear()
        if not self._brief or state != self.state.closed:
            self._closed(state, reason)
        self._commit()
        self._show(True)

    def snapshot(self) -> Snapshot:
        """The sweep as it is now."""
        suggestions = self._suggestions
        return Snapshot.of(
            self.state,
            self._shown_state,
            self.now,
            num_ready=len(suggestions.ready),
            **self._status(len(suggestions.seconds)),
        )

    def _seconds(self) -> float:
        return self._earlier_seconds + (self._dispatcher.now() if self._dispatcher else 0.0)

    def _commit(self) -> None:
        self._committed = time.monotonic()
        self._recorder.commit(self.now, status=self._status(NUM_STORED_SECONDS))
        self._oldest = math.inf

    def _show(self, changed: bool) -> None:
        if changed or time.monotonic() - self._shown > SHOW_SECONDS:
            self._shown = time.monotonic()
            events, self._events = self._events, []
            if self._on_change:
                self._on_change(replace(self.snapshot(), events=events))

    def _status(self, num_seconds: int) -> dict[str, Any]:
        """State that is not in the events, with the durations of the latest suggestions."""
        at = self._suggestions.prospects[-1] if self._suggestions.prospects else None
        num_agents = len(self.state.index.leased)
        latest = tuple(islice(reversed(self._suggestions.seconds), num_seconds))[::-1]
        return {
            "num_slots": (self._dispatcher.num_slots if self._dispatcher else 0) + num_agents,
            "busy_slots": self.state.use.busy_slots,
            "suggesting": self._suggestions.state,
            "gain": at.gain if at else None,
            "error": at.error if at else None,
            "waits_for": self.waits_for,
            "suggestion_seconds": latest,
            "brief": self._brief,
            "dashboard": self._dispatcher.dashboard if self._dispatcher else "",
        }
