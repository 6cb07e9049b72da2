"""A cursor through the log of one sweep: after the first time, only new records are read."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from automl.core import Command, Snapshot, SweepEvent, SweepState
from automl.core.ranking import condensed
from automl.errors import StoreError

from .lease import LeaseRow, read_lease, shown_state
from .reader import Reader, Sweep, read_state, records_after, sound_records
from .records import COMMAND, apply
from .sqlite_files import Connection

MAX_COMMANDS: Final = 1000  # the newest ones, that are kept


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        reader: of the database; name: of the sweep.
        whole: keep every report. Otherwise finished trials have only those that their values need.

    Attributes:
        state: of the sweep.
        lease: of the process that holds the sweep or held it last; None if nobody has.
        created: seconds since 1970.
        events: that the latest `refresh` has read, if it did not read all of them.
        epoch: grows if the sweep was replaced by another one of its name.
    """

    def __init__(self, reader: Reader, name: str, *, whole: bool = False) -> None:
        self._reader = reader
        self._name = name
        self._whole = whole
        self._sweep: tuple[int, float] | None = None  # its id and when it was created
        self._last = 0  # number of the newest record that was read
        self.state = SweepState()
        self.lease: LeaseRow | None = None
        self.created = 0.0
        self._commands: deque[Command] | None = None  # once somebody asks
        self.events: list[SweepEvent] = []
        self.epoch = 0

    @property
    def host(self) -> str:
        """Where the controller runs; "" if none does."""
        return str(self.lease["host"]) if self.lease and self._shown == "running" else ""

    def snapshot(self) -> Snapshot:
        """The sweep as it was last read."""
        lease, shown = self.lease, self._shown
        seconds = lease["seconds"] if lease else self.state.seconds
        status: dict[str, Any] = {}  # further facts of the controller that runs
        if lease and shown == "running":
            status = json.loads(lease["status"])
        return Snapshot.of(self.state, shown, seconds, events=tuple(self.events), **status)

    @property
    def commands(self) -> Sequence[Command]:
        """The newest commands to the sweep, in order."""
        if self._commands is None:
            found = self._reader.of_sweep(self._name, self._read_commands)
            self._commands = deque(found, MAX_COMMANDS)
        return self._commands

    def refresh(self) -> Sequence[int]:
        """Read what is new; return the numbers of the trials that changed.

        Raises:
            StoreError: what was read is damaged, or the store cannot be read.
            UsageError: the sweep was deleted.
        """
        try:
            return self._reader.of_sweep(self._name, self._read)
        except BaseException:
            self._sweep = None  # half of a change may be known
            raise

    @property
    def _shown(self) -> str:
        return shown_state(self.lease, self.state.closed)

    def _read(self, connection: Connection, sweep: Sweep) -> Sequence[int]:
        self.created = sweep.created
        self.events = []
        self.lease = read_lease(connection, sweep.id)
        if self._sweep == (sweep.id, sweep.created):
            if self._last == sweep.last:
                return ()
            try:
                return self._read_new(connection, sweep)
            except StoreError:  # with other goals: all is read again
                pass
        self._read_all(connection, sweep)
        self._sweep = (sweep.id, sweep.created)
        return range(len(self.state.trials))

    def _read_new(self, connection: Connection, sweep: Sweep) -> Sequence[int]:
        changed: set[Any] = set()
        for records, last in records_after(connection, sweep, self._last):
            self.events += (record.event for record in records)
            for record in records:
                if isinstance(record.event, Command) and self._commands is not None:
                    self._commands.append(record.event)
            changed |= apply(self.state, records)
            self._last = last
        numbers = sorted(number for number in changed if number < len(self.state.trials))
        self._condense(numbers)
        return numbers

    def _read_all(self, connection: Connection, sweep: Sweep) -> None:
        self.epoch += 1
        self.events = []
        self.state, self._last = read_state(connection, sweep, condensed=not self._whole)
        self._condense(range(len(self.state.trials)))
        self._commands = None

    def _read_commands(self, connection: Connection, sweep: Sweep) -> list[Command]:
        known = "kind = :kind AND number <= :number"
        number = self._last
        found = sound_records(connection, sweep, known, kind=COMMAND, number=number)
        return [record.event for record in found]

    def _condense(self, numbers: Sequence[int]) -> None:
        """Leave out the reports of finished trials that nobody needs."""
        state, spec = self.state, self.state.spec
        for number in () if self._whole else numbers:
            trial = state.trials[number]
            if trial.state.finished and len(trial.reports) > len(spec.goals) + 1:
                state.trials[number] = condensed(trial, spec.goals, spec.constraints)
                state.whole = False
