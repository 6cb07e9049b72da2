"""Decisions about a sweep become events; they are committed together, then take effect.

What a controller, an `Optimizer` or an import decides is built here. But commands are built by
those who send them (`workflows`), `Started` and `Report` by those who run an attempt, and `Ended`
by the policy on outcomes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from automl.core import (
    Answered,
    Begun,
    Closed,
    Leased,
    Moved,
    Noted,
    Proposed,
    SpecChanged,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
    TrialState,
)
from automl.core.arguments import json_data
from automl.dispatch.base import Dispatcher
from workers.protocol import Ending, Outcome, Params

from .outcomes import ended

if TYPE_CHECKING:
    from automl.ledger import Hold, Ledger

COMMIT_SECONDS: Final = 0.25  # how long a report of an attempt inside `poll` waits at most
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
        self._hold = hold
        self._clock = clock
        self._dispatcher: Dispatcher | None = None
        self.closed = False
        self._status = status
        self._observe = observe
        self._show = show
        self._effects: list[Callable[[], None]] = []
        self._events: list[SweepEvent] = []  # since the sweep was shown last
        self._committed = self._shown = -math.inf
        self._oldest = math.inf  # when the oldest event that is not committed came

    @property
    def state(self) -> SweepState:
        """The sweep, with everything that was applied; do not change it."""
        return self._hold.state

    @property
    def spec(self) -> SweepSpec:
        """The specification of the sweep."""
        return self._hold.state.spec

    @property
    def trials(self) -> list[Trial]:
        """Every trial by number; do not change this list."""
        return self._hold.state.trials

    @property
    def now(self) -> float:
        """Seconds of the sweep, including its earlier runs."""
        return self._clock()

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store."""
        return self._hold.clock()

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of the sweep, once it has started."""
        assert self._dispatcher is not None
        return self._dispatcher

    def attach(self, dispatcher: Dispatcher) -> None:
        """The dispatcher has started: its clock is the sweep's from now on."""
        begun, self._dispatcher = self._clock(), dispatcher
        self._clock = lambda: begun + dispatcher.now()

    def workers(self) -> dict[str, Any]:
        """The slots of the dispatcher and of agents, for those who watch the sweep."""
        dispatcher = self._dispatcher
        return {
            "num_slots": (dispatcher.num_slots if dispatcher else 0) + len(self.state.index.leased),
            "busy_slots": self.state.use.busy_slots,
            "dashboard": dispatcher.dashboard if dispatcher else "",
        }

    # what is decided

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes none."""
        trial = self._hold.apply(event)
        self._events.append(event)
        if self._hold.uncommitted:
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

    def fail(self, trial: Trial, failure: str, message: str, **facts: Any) -> None:
        """An attempt ends before a worker has it, or is lost; `facts` are of its outcome."""
        outcome = Outcome(
            trial.number, trial.attempts, Ending.FAILED, failure=failure, message=message, **facts
        )
        self.apply(ended(self.spec, trial, outcome, self.now))

    def move(self, trial: Trial, state: TrialState, reason: str) -> Trial:
        """A trial changes its state without an outcome."""
        running = trial.state is TrialState.RUNNING
        seconds = self.seconds_running(trial) if running else 0.0
        return self._changed(Moved(trial.number, state, reason, self.now, seconds))

    def lease(self, lease: Leased) -> None:
        """An agent holds the running attempt of a trial."""
        self.apply(replace(lease, at=self.now))

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

    def _changed(self, event: SweepEvent) -> Trial:
        trial = self.apply(event)
        assert trial is not None
        return trial

    # what is committed

    def look(self) -> None:
        """Take in what others have sent to the sweep, without waiting for the next commit."""
        self._hold.look()

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` once all events so far are committed."""
        self._effects.append(effect)

    def commit(self) -> None:
        """Commit what was decided, with a heartbeat."""
        self._committed = time.monotonic()
        self._hold.commit(self.now, status=self._status())
        self._oldest = math.inf

    def flush(self) -> None:
        """Commit if there is something, or for a heartbeat; run the effects; show the sweep."""
        changed = bool(self._hold.uncommitted)
        if changed or time.monotonic() - self._committed > HEARTBEAT_SECONDS:
            self.commit()
        effects, self._effects = self._effects, []
        for effect in effects:
            effect()
        if changed or time.monotonic() - self._shown > SHOW_SECONDS:
            self._tell()

    def settle(self, *, at_once: bool) -> None:
        """After an event of an attempt that runs inside `poll`: flush if something waits for it.

        A report alone is committed with later ones, after `COMMIT_SECONDS` (see `keep_up`).
        """
        late = time.monotonic() - min(self._oldest, self._shown) > COMMIT_SECONDS
        if at_once or late or self._effects:
            self.flush()

    def keep_up(self) -> None:
        """Commit what has waited long enough, or a heartbeat; nothing takes effect by it."""
        now = time.monotonic()
        if now - self._oldest > COMMIT_SECONDS or now - self._committed > HEARTBEAT_SECONDS:
            self.commit()

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
