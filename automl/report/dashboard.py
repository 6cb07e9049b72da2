"""The state of the dashboard: the report's panels, drawn again when the sweep changes."""

from __future__ import annotations

import threading
from typing import Any, Final

from automl.core import Snapshot
from automl.ledger import Ledger

from . import conclusion, summary
from .effects import Insight, insights_of
from .figures import ORDER, draw
from .html import as_json
from .record import Record
from .terminal_view import state_lines

GROWTH: Final = 1.15  # the models are fitted again if the trials have grown by this factor


class Dashboard:
    """Keeps the newest state of one sweep as JSON; a thread reads it from the ledger.

    Args:
        ledger: open for reading; sweep: its name.
        interval: seconds between reads.

    Attributes:
        state: JSON with `version`, `title`, `lines`, `warnings`, `links` and `panels`.
    """

    def __init__(self, ledger: Ledger, sweep: str, interval: float = 2.0) -> None:
        self._ledger = ledger
        self._sweep = sweep
        self._interval = interval
        self._insights: list[Insight] = []
        self._num_fitted = 0  # finished trials in the models
        self._seen: Any = None
        self._version = 0
        self._closed = threading.Event()
        self.state = self._draw(quick=True)
        self._thread = threading.Thread(
            target=self._watch, name="automl-dashboard-state", daemon=True
        )

    def start(self) -> Dashboard:
        """Start the thread."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _watch(self) -> None:
        while not self._closed.wait(self._interval if self._seen is not None else 0.0):
            try:
                self.state = self._draw()
            except Exception as error:  # a locked or vanished store must not end the page
                self._seen = ()
                self._version += 1
                self.state = as_json(
                    {"version": self._version, "error": f"{type(error).__name__}: {error}"}
                )

    def _draw(self, quick: bool = False) -> str:
        """The newest state; `quick` leaves out fitting the models, which takes seconds."""
        snapshot = self._ledger.snapshot(self._sweep)
        seen = _fingerprint(snapshot)
        if seen == self._seen:
            return self.state
        record = Record.read(self._ledger, self._sweep)
        if not quick:
            self._fit(record)
        self._version += 1
        state = {
            "version": self._version,
            "title": self._sweep,
            "lines": [
                *state_lines(snapshot),
                summary.headline(snapshot),
                conclusion.certainty(record, self._insights),
            ],
            "warnings": list(conclusion.warnings(record, self._insights)),
            "links": links(snapshot),
            "panels": [vars(draw(name, record, self._insights)) for name in ORDER],
        }
        self._seen = None if quick else seen
        return as_json(state)

    def _fit(self, record: Record) -> None:
        """Fit the models again if there are enough new trials, or if the sweep has ended."""
        finished = sum(trial.state.finished for trial in record.trials)
        ended = record.snapshot.state != "running" and finished != self._num_fitted
        if finished >= self._num_fitted * GROWTH + 1 or ended:
            self._insights = insights_of(record)
            self._num_fitted = finished


def links(snapshot: Snapshot) -> dict[str, str]:
    """Pages of the Ray dashboard; empty if there is none, or if its address is no web page."""
    if not snapshot.dashboard.startswith(("http://", "https://")):
        return {}
    pages = {"Ray: jobs": "jobs", "actors (trials)": "actors", "logs": "logs", "cluster": "cluster"}
    return {name: f"{snapshot.dashboard.rstrip('/')}/#/{page}" for name, page in pages.items()}


def _fingerprint(snapshot: Snapshot) -> Any:
    trials = tuple((trial.state, trial.attempts, len(trial.reports)) for trial in snapshot.trials)
    running = int(snapshot.seconds) // 5 if snapshot.state == "running" else 0
    return snapshot.state, snapshot.dashboard, running, trials
