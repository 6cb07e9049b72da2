"""A ledger in memory, for simulations: the same events and trials, without a database."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from automl.core import Begun, Command, Snapshot, SweepEvent, SweepSpec, Trial
from automl.core.names import check_name
from workers.files.folder import Folder
from workers.protocol import Report

from .pending import PendingEvents


class MemoryRecorder(PendingEvents):
    """A `SweepRecorder` that keeps committed events in the list `log`."""

    def __init__(self) -> None:
        super().__init__([])
        self.log: list[SweepEvent] = []
        self.state = "interrupted"
        self.seconds = 0.0
        self._begun: dict[int, float] = {}

    def commit(
        self,
        seconds: float | None = None,
        *,
        state: str | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> bool:
        """Keep the applied events, except reports (the trials have them); never asks to stop."""
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

    def clock(self) -> float:
        """The time of this machine."""
        return time.time()

    def absence(self, until: float) -> float:
        """None: no other process can hold the sweep."""
        return 0.0

    def look(self) -> bool:
        """Never: no other process can reach the sweep."""
        return False

    def new_commands(self, *, refresh: bool = False) -> list[tuple[int, Command]]:
        """Always empty: no other process can reach the sweep."""
        return []

    def executed_commands(self) -> set[int]:
        """Always empty."""
        return set()


class MemoryLedger:
    """A `SweepLedger` for the sweeps of this process. They end with it."""

    def __init__(self) -> None:
        self._specs: dict[str, SweepSpec] = {}
        self._recorders: dict[str, MemoryRecorder] = {}

    def close(self) -> None:
        """Do nothing."""

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep, or replace the one of the same name."""
        check_name(spec.name)
        self._specs[spec.name] = spec
        self._recorders[spec.name] = MemoryRecorder()
        return spec.name

    def spec(self, sweep: str) -> SweepSpec:
        """The specification of a sweep."""
        return self._specs[sweep]

    def replace_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Keep another spec."""
        self._specs[sweep] = replace(spec, name=sweep)

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        spec, recorder = self._specs[sweep], self._recorders[sweep]
        return Snapshot(
            sweep,
            recorder.state,
            tuple(recorder.trials),
            spec.goals,
            spec.constraints,
            spec.budget,
            recorder.seconds,
        )

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every committed event except reports, in order."""
        yield from self._recorders[sweep].log

    def files(self, sweep: str) -> Folder:
        """A folder for the sweep; it is not made."""
        return Folder(tempfile.gettempdir(), "automl-memory", sweep)

    def acquire(self, sweep: str) -> MemoryRecorder:
        """The recorder of the sweep."""
        return self._recorders[sweep]

    def release(self, sweep: str) -> None:
        """Do nothing: nobody else can hold the sweep."""
