"""A sweep as the live page shows it: the report's panels, drawn again when the sweep has changed."""

from __future__ import annotations

import threading
from typing import Any, Final

from automl.core.snapshot import Snapshot
from automl.ledger import Ledger

from . import answer
from .draw import Panel
from .effects import Insight, study
from .figures import PANELS
from .html import as_json
from .live import state_lines
from .record import Record

GROWTH: Final = 1.15  # the surrogates are fitted again when there are so many times as many trials


class Board:
    """Keeps the newest state of one sweep as JSON, read from the ledger by a thread of its own.

    Args:
        ledger: open for reading; sweep: its name.
        interval: seconds between looks.
    """

    def __init__(self, ledger: Ledger, sweep: str, interval: float = 2.0) -> None:
        self._ledger, self._sweep, self._interval = ledger, sweep, interval
        self._insights: list[Insight] = []
        self._told = 0
        self._seen: Any = None
        self._version = 0
        self._closed = threading.Event()
        self._state = self._draw(quick=True)
        self._thread = threading.Thread(target=self._watch, name="automl-board", daemon=True)

    @property
    def state(self) -> str:
        """JSON: `version`, `title`, `lines`, `doubts`, `links` and `panels`."""
        return self._state

    def start(self) -> Board:
        """Begin to watch."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _watch(self) -> None:
        while not self._closed.wait(self._interval if self._seen is not None else 0.0):
            try:
                self._state = self._draw()
            except Exception as error:  # a locked or vanished store must not end the page
                self._seen = ()
                self._version += 1
                self._state = as_json(
                    {"version": self._version, "error": f"{type(error).__name__}: {error}"}
                )

    def _draw(self, quick: bool = False) -> str:
        """The newest state; `quick` leaves out what takes seconds to learn, for the next look."""
        snapshot = self._ledger.snapshot(self._sweep)
        seen = _fingerprint(snapshot)
        if seen == self._seen:
            return self._state
        record = Record.read(self._ledger, self._sweep)
        if not quick:
            self._learn(record)
        self._version += 1
        state = {
            "version": self._version,
            "title": self._sweep,
            "lines": [
                *state_lines(snapshot),
                answer.sentence(record),
                answer.certainty(record, self._insights),
            ],
            "doubts": list(answer.doubts(record, self._insights)),
            "links": links(snapshot),
            "panels": [_panel(draw(record, self._insights)) for draw in PANELS],
        }
        self._seen = None if quick else seen
        return as_json(state)

    def _learn(self, record: Record) -> None:
        """Fitting takes seconds, so it waits for news that matter."""
        told = sum(trial.state.finished for trial in record.trials)
        ended = record.snapshot.state != "running" and told != self._told
        if told >= self._told * GROWTH + 1 or ended:
            self._insights, self._told = study(record), told


def links(snapshot: Snapshot) -> dict[str, str]:
    """Pages of the Ray dashboard, while there is one."""
    if not snapshot.dashboard:
        return {}
    pages = {"Ray: jobs": "jobs", "actors (trials)": "actors", "logs": "logs", "cluster": "cluster"}
    return {name: f"{snapshot.dashboard.rstrip('/')}/#/{page}" for name, page in pages.items()}


def _fingerprint(snapshot: Snapshot) -> Any:
    trials = tuple((trial.state, trial.attempts, len(trial.reports)) for trial in snapshot.trials)
    running = int(snapshot.seconds) // 5 if snapshot.state == "running" else 0
    return snapshot.state, snapshot.dashboard, running, trials


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "key": panel.key,
        "title": panel.title,
        "caption": panel.caption,
        "figures": list(panel.figures),
    }
