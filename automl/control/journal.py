"""Events change a sweep at once, are committed together, then take effect."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from automl.core import Activity, Snapshot, SweepEvent, Trial
from automl.core.trial import without_held
from automl.dispatch.base import Dispatcher
from automl.ledger import Recorder
from automl.suggesters.queue import SuggestionQueue

from .writer import SweepWriter

COMMIT_SECONDS: Final = 0.25  # how long a report of an attempt inside `poll` waits at most
HEARTBEAT_SECONDS: Final = 1.0
SHOW_SECONDS: Final = 0.5
NUM_STORED_SECONDS: Final = 20  # of the latest suggestions, in the status of each commit


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
        self._num_commits, self._commit_seconds = 0, 0.0
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
            activity=Activity(
                suggestions.num_made,
                len(suggestions.ready),
                self._num_commits,
                self._commit_seconds,
            ),
            **self._status(len(suggestions.seconds)),
        )

    def _seconds(self) -> float:
        return self._earlier_seconds + (self._dispatcher.now() if self._dispatcher else 0.0)

    def _commit(self) -> None:
        self._committed = time.monotonic()
        self._recorder.commit(self.now, status=self._status(NUM_STORED_SECONDS))
        self._oldest = math.inf
        self._num_commits += 1
        self._commit_seconds += time.monotonic() - self._committed

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
