"""A ledger that is never written down, for simulations: the same face, the same fold of events, no database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.core.events import Begun, SweepEvent, Wished
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import Trial
from workers.protocol import Report

from .ledger import Ledger, check_name
from .recorder import Recorder


class MemoryRecorder(Recorder):
    """Folds events into trials; what is committed stays in a list."""

    def __init__(self) -> None:
        self.trials, self._events = [], []
        self.log: list[SweepEvent] = []
        self.state, self.seconds = "interrupted", 0.0
        self._begun: dict[int, float] = {}

    def commit(
        self,
        seconds: float | None = None,
        *,
        state: str | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> bool:
        """Keep what was applied, but for reports, which the trials have; nobody asks such a sweep to stop."""
        for event in self._events:
            if isinstance(event, Begun):
                self._begun[event.trial] = event.at
            if not isinstance(event, Report):
                self.log.append(event)
        self._events.clear()
        self.seconds = self.seconds if seconds is None else seconds
        self.state = state or self.state
        return False

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began."""
        return self._begun.get(trial.number, 0.0)

    def wishes(self, *, look: bool = False) -> list[tuple[int, Wished]]:
        """Nobody else can reach such a sweep."""
        return []

    def fulfilled(self) -> set[int]:
        """None: there are no wishes."""
        return set()

    def release(self) -> None:
        """Nothing is held."""


class MemoryLedger(Ledger):
    """Sweeps of this process alone, gone with it."""

    def __init__(self) -> None:
        self.name = "memory"
        self._folder = None
        self._specs: dict[str, SweepSpec] = {}
        self._held: dict[str, Recorder] = {}
        self._kept: dict[str, MemoryRecorder] = {}

    def close(self) -> None:
        """Nothing is open."""
        self._held.clear()

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep, or replace one of the same name."""
        check_name(spec.name)
        self._specs[spec.name], self._kept[spec.name] = spec, MemoryRecorder()
        return spec.name

    def spec(self, sweep: str) -> SweepSpec:
        """What the sweep was made with."""
        return self._specs[sweep]

    def replace_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Keep another spec."""
        self._specs[sweep] = replace(spec, name=sweep)

    def trials(self, sweep: str) -> list[Trial]:
        """Every trial by number."""
        return list(self._kept[sweep].trials)

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        spec, kept = self._specs[sweep], self._kept[sweep]
        return Snapshot(
            sweep,
            kept.state,
            tuple(kept.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            kept.seconds,
            last_report_counts=spec.last_report_counts,
        )

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Everything recorded but reports, in order."""
        yield from self._kept[sweep].log

    def wishes(self, sweep: str) -> list[Wished]:
        """None."""
        return []

    def folder(self, sweep: str) -> Path:
        """A name for one; nothing is made."""
        return Path(tempfile.gettempdir()) / "automl-memory" / sweep

    def acquire(self, sweep: str) -> Recorder:
        """The recorder of the sweep."""
        self._held[sweep] = self._kept[sweep]
        return self._kept[sweep]
