"""A ledger in memory, for simulations: the same log and state, without a database."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from automl.core import Command, Created, Snapshot, SpecChanged, SweepEvent, SweepSpec, SweepState
from automl.core.names import check_name
from workers.files.folder import Folder

from .recorder import PendingEvents


class MemoryRecorder(PendingEvents):
    """What `Recorder` is, with the committed events in the list `log`."""

    def __init__(self, spec: SweepSpec, environment: Mapping[str, Any]) -> None:
        super().__init__(SweepState())
        self.log: list[SweepEvent] = []
        self.seconds = 0.0
        self.taken = 0
        self.earlier_state = "interrupted"
        self.apply(Created(spec.to_dict(), environment))
        self.state.spec = spec  # its dictionary has less
        self.commit()

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Keep the queued events."""
        self.log += self._events
        self._events.clear()
        self.state.number = len(self.log)
        self.seconds = self.seconds if seconds is None else seconds

    def look(self) -> None:
        """Do nothing: no other process can reach the sweep."""

    def clock(self) -> float:
        """The time of this machine."""
        return time.time()

    def absence(self, until: float) -> float:
        """None: no other process can hold the sweep."""
        return 0.0

    def add(self, event: SweepEvent) -> int:
        """Record an event of somebody who does not hold the sweep; returns its number."""
        self.log.append(event)
        self.state.apply(event, len(self.log))
        return len(self.log)


class MemoryLedger:
    """What `Ledger` is, for the sweeps of this process. They end with it."""

    def __init__(self) -> None:
        self._recorders: dict[str, MemoryRecorder] = {}

    def close(self) -> None:
        """Do nothing."""

    def create_sweep(
        self, spec: SweepSpec, environment: Mapping[str, Any] | None = None, *, rename: bool = True
    ) -> str:
        """Add a sweep, or replace the one of the same name."""
        check_name(spec.name)
        self._recorders[spec.name] = MemoryRecorder(spec, environment or {})
        return spec.name

    def spec(self, sweep: str) -> SweepSpec:
        """The specification that the sweep has now."""
        return self._recorders[sweep].state.spec

    def change_spec(self, sweep: str, spec: SweepSpec) -> None:
        """Go on with another specification."""
        self._recorders[sweep].add(SpecChanged(spec.to_dict()))
        self._recorders[sweep].state.spec = spec

    def snapshot(self, sweep: str) -> Snapshot:
        """The sweep as it is now."""
        recorder = self._recorders[sweep]
        return Snapshot.of(recorder.state, recorder.state.closed, recorder.seconds)

    def events(self, sweep: str) -> Iterator[SweepEvent]:
        """Every committed event, in order."""
        yield from self._recorders[sweep].log

    def files(self, sweep: str) -> Folder:
        """A folder for the sweep; it is not made."""
        return Folder(tempfile.gettempdir(), "automl-memory", sweep)

    def send(self, sweep: str, *commands: Command) -> list[int]:
        """Record commands to the sweep; returns their numbers."""
        recorder = self._recorders[sweep]
        return [recorder.add(replace(command, sent=recorder.clock())) for command in commands]

    def acquire(self, sweep: str) -> MemoryRecorder:
        """The recorder of the sweep."""
        recorder = self._recorders[sweep]
        recorder.taken = len(recorder.log)
        recorder.earlier_state = recorder.state.closed
        return recorder

    def release(self, sweep: str) -> None:
        """Do nothing: nobody else can hold the sweep."""
