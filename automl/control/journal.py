"""The state of a sweep: events change it at once, are committed together, then take effect."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from automl.core import Activity, Budget, Noted, Snapshot, SweepEvent, SweepSpec, Trial, TrialIndex
from automl.core.trial import without_held
from automl.core.worker_range import WorkerRange
from automl.dispatch.base import Dispatcher
from automl.ledger import SweepRecorder
from automl.suggesters.queue import SuggestionQueue

from .budget_tracker import BudgetTracker

COMMIT_SECONDS: Final = 0.25  # how long a report of an attempt inside `poll` waits at most
HEARTBEAT_SECONDS: Final = 1.0
SHOW_SECONDS: Final = 0.5
NUM_STORED_SECONDS: Final = 20  # of the latest suggestions, in the status of each commit


class Journal:
    """The state of a sweep, and the only way to change it.

    A decision takes effect only after it and the events that led to it are committed. So a
    controller that is killed at any instant has done nothing that the ledger does not know.

    Args:
        spec: of the sweep.
        recorder: writes the events of the sweep to the ledger.
        suggestions: their state is part of the sweep's status.
        seconds: wall-clock seconds of the sweep's earlier runs.
        observe: called with each trial that has changed.
        on_change: called with the sweep after each commit and at least every half second.
        brief: whether the sweep is held for a moment only.

    Attributes:
        index: of the trials by state.
        held: numbers of the trials that people have paused.
        budget: tracks the sweep's budget.
        stop_requested: somebody has asked the sweep to stop (`automl stop`).
        waits_for: for whom the sweep waits before it begins a trial; "" if it does not.
    """

    def __init__(
        self,
        spec: SweepSpec,
        recorder: SweepRecorder,
        suggestions: SuggestionQueue,
        *,
        seconds: float = 0.0,
        observe: Callable[[Trial], object] = lambda trial: None,
        on_change: Callable[[Snapshot], None] | None = None,
        brief: bool = False,
    ) -> None:
        self.spec = spec
        self._brief = brief
        self._recorder = recorder
        self._suggestions = suggestions
        self._observe = observe
        self._on_change = on_change
        self.index = TrialIndex(recorder.trials)
        self.held = {trial.number for trial in recorder.trials if without_held(trial) is not trial}
        self.budget = BudgetTracker(spec, seconds)
        self.stop_requested = False
        self.waits_for = ""
        self._dispatcher: Dispatcher | None = None
        self._state = "running"
        self._effects: list[Callable[[], None]] = []
        self._committed = self._shown = -math.inf
        self._num_commits, self._commit_seconds = 0, 0.0
        self._oldest = math.inf  # when the oldest event that is not committed came

    def attach(self, dispatcher: Dispatcher) -> None:
        """The dispatcher has started: its clock is the sweep's from now on."""
        self._dispatcher = dispatcher

    @property
    def trials(self) -> list[Trial]:
        """Every trial by number; do not change this list."""
        return self._recorder.trials

    @property
    def now(self) -> float:
        """Seconds of the sweep, including its earlier runs."""
        return self.budget.earlier_seconds + (self._dispatcher.now() if self._dispatcher else 0.0)

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes nothing."""
        trial = self._recorder.apply(event)
        if self._recorder.uncommitted:
            self._oldest = min(self._oldest, time.monotonic())
        if trial is not None:
            self.index.update(trial)
            seen = without_held(trial)
            if seen is not trial:
                self.held.add(trial.number)
            else:
                self.held.discard(trial.number)
            self._observe(seen)
        return trial

    def visible_trials(self) -> Sequence[Trial]:
        """Every trial by number, as stoppers see it."""
        return [without_held(trial) for trial in self.trials] if self.held else self.trials

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store."""
        return self._recorder.clock()

    def look(self) -> None:
        """Look for commands and for a request to stop, without waiting for the next commit."""
        self.stop_requested |= self._recorder.look()

    def limit(self, budget: Budget) -> None:
        """Go on with another budget."""
        self.spec = replace(self.spec, budget=budget)
        self.budget.limit(budget)

    def scale(self, workers: WorkerRange) -> None:
        """Go on with another number of workers."""
        self.spec = self.spec.with_workers(workers)

    def note(self, kind: str, message: str, trial: int | None = None) -> None:
        """Record a note, about a trial or the sweep."""
        self.apply(Noted(kind, message, trial, self.now))

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

    def close(self, state: str) -> None:
        """Commit for the last time, with the final state of the sweep; drops pending effects."""
        self._state = state
        self._effects.clear()
        self._commit(state)
        self._show(True)

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began."""
        begun = self.budget.begun(trial.number)
        return self._recorder.begun(trial) if begun is None else begun

    def snapshot(self) -> Snapshot:
        """The sweep as it is now."""
        spec = self.spec
        return Snapshot(
            spec.name,
            self._state,
            tuple(self.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            self.now,
            spec=spec,
            activity=Activity(
                self._suggestions.num_made,
                len(self._suggestions.ready),
                self._num_commits,
                self._commit_seconds,
            ),
            **self._status(len(self._suggestions.seconds)),
        )

    def _commit(self, state: str | None = None) -> None:
        self._committed = time.monotonic()
        self.stop_requested |= self._recorder.commit(
            self.now, state=state, status=self._status(NUM_STORED_SECONDS)
        )
        self._oldest = math.inf
        self._num_commits += 1
        self._commit_seconds += time.monotonic() - self._committed

    def _show(self, changed: bool) -> None:
        if changed or time.monotonic() - self._shown > SHOW_SECONDS:
            self._shown = time.monotonic()
            if self._on_change:
                self._on_change(self.snapshot())

    def _status(self, num_seconds: int) -> dict[str, Any]:
        """State that is not in the events, with the durations of the latest suggestions."""
        num_agents = len(self.index.leased)
        latest = tuple(islice(reversed(self._suggestions.seconds), num_seconds))[::-1]
        return {
            "num_slots": (self._dispatcher.num_slots if self._dispatcher else 0) + num_agents,
            "busy_slots": self.budget.busy_slots,
            "suggesting": self._suggestions.state,
            "waits_for": self.waits_for,
            "suggestion_seconds": latest,
            "brief": self._brief,
            "dashboard": self._dispatcher.dashboard if self._dispatcher else "",
        }
