"""A cursor through the log of one sweep: after the first time, only new records are read."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from automl.core import Command, SweepEvent, SweepState
from automl.core.ranking import condensed
from automl.errors import StoreError
from workers.protocol import Report

from .lease import LeaseRow, shown_state
from .reader import Reader, Sweep, advance, chunks, last_place, read_lease, read_state, sound_rows
from .records import BEGINNING, COMMAND, REPORT, Place, decoded
from .schema import RECORDS
from .store_errors import DamageError

MAX_COMMANDS: Final = 1000  # the newest ones, that are kept


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        reader: of the database; name: of the sweep.

    Attributes:
        state: of the sweep; finished trials have only the reports that their values need.
        lease: of the process that holds the sweep or held it last; None if nobody has.
        created: seconds since 1970.
        commands: the newest commands to the sweep.
        events: that the latest `refresh` has read, if it did not read all of them.
        epoch: grows if the sweep was replaced by another one of its name, or mended.
    """

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._name = name
        self._sweep: int | None = None
        self._place = BEGINNING
        self._reports: Counter[int] | None = None  # of each trial, counted once somebody asks
        self.state = SweepState()
        self.lease: LeaseRow | None = None
        self.created = 0.0
        self.commands: deque[Command] = deque(maxlen=MAX_COMMANDS)
        self.events: list[SweepEvent] = []
        self.epoch = 0

    @property
    def shown(self) -> str:
        """The state that people see."""
        return shown_state(self.lease, self.state.closed)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the sweep, as its controller has said last."""
        return self.lease["seconds"] if self.lease else self.state.seconds

    @property
    def host(self) -> str:
        """Where the controller runs; "" if none does."""
        return str(self.lease["host"]) if self.lease and self.shown == "running" else ""

    @property
    def status(self) -> dict[str, Any]:
        """Further facts of the controller that runs; see `Snapshot`."""
        if self.lease is None or self.shown != "running":
            return {}
        status: dict[str, Any] = json.loads(self.lease["status"])
        return status

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

    def num_reports(self, number: int) -> int:
        """How many reports a trial has made, also those that are not kept."""
        if self._reports is None:
            self._reports = self._reader.of_sweep(self._name, self._count_reports)
        return self._reports[number]

    def _read(self, connection: sa.Connection, sweep: Sweep) -> Sequence[int]:
        self.created = sweep.created
        self.events = []
        self.lease = read_lease(connection, sweep)
        last = last_place(connection, sweep.id)
        if self._sweep == sweep.id:
            if last == self._place:
                return ()
            try:
                return self._read_new(connection, sweep)
            except (DamageError, StoreError):  # mended, or with other goals: all is read again
                pass
        self._read_all(connection, sweep)
        self._sweep = sweep.id
        return range(len(self.state.trials))

    def _read_new(self, connection: sa.Connection, sweep: Sweep) -> Sequence[int]:
        changed: set[Any] = set()
        for rows in chunks(connection, sweep, self._place):
            records = decoded(rows)
            self.events += (record.event for record in records)
            for record in records:
                if isinstance(record.event, Report) and self._reports is not None:
                    self._reports[record.event.trial] += 1
                elif isinstance(record.event, Command):
                    self.commands.append(record.event)
                    changed |= {record.event.trial} - {None}  # its marks may be others
            changed |= advance(self.state, records)
            self._place = Place(rows[-1].number, rows[-1].sum)
        if self._place != last_place(connection, sweep.id):
            raise DamageError(f"the last records of sweep {sweep.name!r} are missing")
        numbers = sorted(number for number in changed if number < len(self.state.trials))
        self._condense(numbers)
        return numbers

    def _read_all(self, connection: sa.Connection, sweep: Sweep) -> None:
        self.epoch += 1
        self.events = []
        self.state, self._place = read_state(connection, sweep, condensed=True)
        self._condense(range(len(self.state.trials)))
        self._reports = None
        self.commands.clear()
        self.commands.extend(newest_commands(connection, sweep, MAX_COMMANDS))

    def _count_reports(self, connection: sa.Connection, sweep: Sweep) -> Counter[int]:
        mine = (RECORDS.c.sweep == sweep.id) & (RECORDS.c.number <= self._place.number)
        query = sa.select(RECORDS.c.trial, sa.func.count()).where(mine & (RECORDS.c.kind == REPORT))
        found = connection.execute(query.group_by(RECORDS.c.trial))
        return Counter({row[0]: row[1] for row in found})

    def _condense(self, numbers: Sequence[int]) -> None:
        """Leave out the reports of finished trials that nobody needs."""
        state, spec = self.state, self.state.spec
        for number in numbers:
            trial = state.trials[number]
            if trial.state.finished and len(trial.reports) > len(spec.goals):
                state.trials[number] = condensed(trial, spec.goals, spec.constraints)
                state.whole = False


def newest_commands(
    connection: sa.Connection, sweep: Sweep, most: int | None = None
) -> list[Command]:
    """The newest commands to a sweep, in order. Each is verified, but not that none is missing."""
    mine = (RECORDS.c.sweep == sweep.id) & (RECORDS.c.kind == COMMAND)
    query = sa.select(RECORDS).where(mine).order_by(RECORDS.c.number.desc()).limit(most)
    rows = sound_rows(connection, sweep, query)[::-1]
    return [record.event for record in decoded(rows) if isinstance(record.event, Command)]
