"""The controller's desk: events are folded at once, committed together, and acted on only then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from automl.core.events import Command, Noted, SweepEvent
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import Trial
from automl.core.trial_index import History
from automl.dispatch.base import Dispatcher
from automl.ledger import SweepRecorder
from automl.suggesters.queue import SuggestionQueue

from .budget_tracker import Accounts

HEARTBEAT_SECONDS: Final = 1.0
SHOW_SECONDS: Final = 0.5
LATEST: Final = 20  # suggestions whose seconds go with every commit


class Journal:
    """Everything that the controller knows of its sweep, and the only way to change it.

    Whatever is decided takes effect only after the events that led to it, and the decision itself, are committed: a
    controller that is killed at any instant has acted on nothing that the ledger does not know.

    Args:
        spec: of the sweep.
        recorder: holds the sweep in the ledger.
        suggestions: whose state is shown.
        seconds: of the sweep's earlier runs.
        on_change: called with the sweep at each event and at least every half second.
        state: of the sweep, as in `Snapshot`.
        watch: called with each trial that has changed.
        dispatcher: None until it is there; its clock is the sweep's.
    """

    def __init__(
        self,
        spec: SweepSpec,
        recorder: SweepRecorder,
        suggestions: SuggestionQueue,
        *,
        seconds: float = 0.0,
        on_change: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self.spec, self._recorder, self._suggestions, self._on_change = (
            spec,
            recorder,
            suggestions,
            on_change,
        )
        self.history = History(recorder.trials)
        self.accounts = Accounts(spec, seconds)
        self.watch: Callable[[Trial], object] = lambda trial: None
        self.dispatcher: Dispatcher | None = None
        self.state = "running"
        self.stop_requested = False
        self._effects: list[Callable[[], None]] = []
        self._beat = self._shown = -math.inf

    @property
    def trials(self) -> list[Trial]:
        """Every trial by number; the list itself, for reading."""
        return self._recorder.trials

    @property
    def now(self) -> float:
        """Seconds of the sweep, earlier runs counted in."""
        return self.accounts.earlier_seconds + (self.dispatcher.now() if self.dispatcher else 0.0)

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None where it changes nothing."""
        trial = self._recorder.apply(event)
        if trial is not None:
            self.history.update(trial)
            self.watch(trial)
        return trial

    def note(self, kind: str, message: str, trial: int | None = None) -> None:
        """Keep something worth knowing."""
        self.apply(Noted(kind, message, trial, self.now))

    def then(self, effect: Callable[[], None]) -> None:
        """Do something once everything so far is committed."""
        self._effects.append(effect)

    def flush(self) -> None:
        """Commit, and give a sign of life; then do what waited for it; then show the sweep."""
        changed = self._recorder.uncommitted > 0
        beating = time.monotonic() - self._beat > HEARTBEAT_SECONDS
        if changed or beating:
            self._commit()
        effects, self._effects = self._effects, []
        for effect in effects:
            effect()
        self._show(changed)

    def close(self, state: str) -> None:
        """Commit for the last time; what still waits to be done is dropped."""
        self.state = state
        self._effects.clear()
        self._commit(state)
        self._show(True)

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began."""
        here = self.accounts.begun(trial.number)
        return self._recorder.begun(trial) if here is None else here

    def wishes(self, *, look: bool = False) -> list[tuple[int, Command]]:
        """What was asked of the sweep since the last time, up to the last commit or, to `look`, up to now."""
        return self._recorder.new_commands(refresh=look)

    def fulfilled(self) -> set[int]:
        """Which wishes have become trials, as they are committed."""
        return self._recorder.executed_commands()

    def snapshot(self) -> Snapshot:
        """The sweep as it is now."""
        spec = self.spec
        return Snapshot(
            spec.name,
            self.state,
            tuple(self.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            self.now,
            last_report_counts=spec.last_report_counts,
            spec=spec,
            **self._status(len(self._suggestions.seconds)),
        )

    def _commit(self, state: str | None = None) -> None:
        self._beat = time.monotonic()
        self.stop_requested |= self._recorder.commit(
            self.now, state=state, status=self._status(LATEST)
        )

    def _show(self, changed: bool) -> None:
        if self._on_change and (changed or time.monotonic() - self._shown > SHOW_SECONDS):
            self._shown = time.monotonic()
            self._on_change(self.snapshot())

    def _status(self, most: int) -> dict[str, Any]:
        """What is not an event, with the seconds of so many suggestions."""
        return {
            "num_slots": self.dispatcher.num_slots if self.dispatcher else 0,
            "busy_slots": self.accounts.busy_slots,
            "suggesting": self._suggestions.state,
            "suggestion_seconds": tuple(islice(reversed(self._suggestions.seconds), most))[::-1],
            "dashboard": self.dispatcher.dashboard if self.dispatcher else "",
        }
