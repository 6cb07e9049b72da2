"""Reads the log of a sweep: after the first time, a follower reads only what is new."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from automl.core import Command, Snapshot, SweepEvent, SweepState
from automl.core.garbage import no_collection
from automl.core.ranking import condensed
from automl.errors import StoreError, UsageError
from search_spaces.plugins import nearest

from .database import RECORDS, SWEEPS, Database, Sweep
from .recorder import shown_state
from .records import apply, cached, records_after, records_where, storable

MAX_COMMANDS: Final = 1000  # the newest ones, that are kept
T = TypeVar("T")


def read_sweep(database: Database, name: str, read: Callable[[sa.Connection, Sweep], T]) -> T:
    """What a function reads of a sweep, in one transaction; waits for a server that restarts.

    Raises:
        StoreError: what it reads is damaged.
        UsageError: there is no such sweep.
    """
    with no_collection():  # it would scan all rows again and again
        found = database.run(
            lambda connection: [
                read(connection, sweep)
                for sweep in database.sweeps(connection, SWEEPS.c.name == storable(name))
            ]
        )
    if found:
        return found[0]
    names = [sweep.name for sweep in database.run(database.sweeps)]
    hint = nearest(name, names) if names else "it has no sweeps yet"
    if name.endswith((".yaml", ".yml")):
        hint = f"`automl sweep {name}` runs a configuration, and with --create only creates it"
    raise UsageError(f"there is no sweep named {name!r} in {database.name}: {hint}")


def read_state(connection: sa.Connection, sweep: Sweep, *, condensed: bool = False) -> SweepState:
    """The state of a sweep.

    Args:
        condensed: finished trials may lack reports that their values do not need. Then only what
            is newer than the cached state is read.
    """
    if condensed and (known := cached(connection, sweep.id)):
        with suppress(StoreError):  # its reports were kept for other goals
            return catch_up(connection, sweep, known)
    return catch_up(connection, sweep, SweepState())


def catch_up(connection: sa.Connection, sweep: Sweep, state: SweepState) -> SweepState:
    """Apply the records to a state that it does not know."""
    for records in records_after(connection, sweep, state.number):
        apply(state, records)
    return state


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        database: of the store; name: of the sweep.
        whole: keep every report. Otherwise finished trials have only those that their values need.

    Attributes:
        state: of the sweep.
        events: that the latest `refresh` has read, if it did not read all of them.
        epoch: grows if the sweep was replaced by another one of its name.
    """

    def __init__(self, database: Database, name: str, *, whole: bool = False) -> None:
        self._database = database
        self._name = name
        self._whole = whole
        self._sweep: Sweep | None = None
        self._known: tuple[int, float] | None = None  # its id and when it was created
        self.state = SweepState()
        self._commands: deque[Command] | None = None  # once somebody asks
        self.events: list[SweepEvent] = []
        self.epoch = 0

    @property
    def created(self) -> float:
        """When the sweep was created, in seconds since 1970."""
        return float(self._sweep.created) if self._sweep else 0.0

    @property
    def host(self) -> str:
        """Where the controller runs; "" if none does."""
        return str(self._sweep.host) if self._sweep and self._shown == "running" else ""

    def snapshot(self) -> Snapshot:
        """The sweep as it was last read."""
        sweep, shown = self._sweep, self._shown
        seconds = sweep.seconds if sweep and sweep.fence else self.state.seconds
        status: dict[str, Any] = {}  # further facts of the controller that runs
        if sweep and shown == "running":
            status = json.loads(sweep.status)
        return Snapshot.of(self.state, shown, seconds, events=tuple(self.events), **status)

    @property
    def commands(self) -> Sequence[Command]:
        """The newest commands to the sweep, in order."""
        if self._commands is None:
            found = read_sweep(self._database, self._name, self._read_commands)
            self._commands = deque(found, MAX_COMMANDS)
        return self._commands

    def refresh(self) -> Sequence[int]:
        """Read what is new; return the numbers of the trials that changed.

        Raises:
            StoreError: what was read is damaged, or the store cannot be read.
            UsageError: the sweep was deleted.
        """
        try:
            return read_sweep(self._database, self._name, self._read)
        except BaseException:
            self._known = None  # half of a change may be known
            raise

    @property
    def _shown(self) -> str:
        return shown_state(self._sweep, self.state.closed) if self._sweep else self.state.closed

    def _read(self, connection: sa.Connection, sweep: Sweep) -> Sequence[int]:
        self._sweep = sweep
        self.events = []
        if self._known == (sweep.id, sweep.created):
            with suppress(StoreError):  # with other goals: all is read again
                return self._read_new(connection, sweep)
        self.epoch += 1
        self.events = []
        self._commands = None
        self.state = read_state(connection, sweep, condensed=not self._whole)
        self._known = (sweep.id, sweep.created)
        numbers = range(len(self.state.trials))
        self._condense(numbers)
        return numbers

    def _read_new(self, connection: sa.Connection, sweep: Sweep) -> Sequence[int]:
        changed: set[int] = set()
        for records in records_after(connection, sweep, self.state.number):
            events = [record.event for record in records]
            self.events += events
            if self._commands is not None:
                self._commands += [event for event in events if isinstance(event, Command)]
            changed |= apply(self.state, records)
        self._condense(sorted(changed))
        return sorted(changed)

    def _read_commands(self, connection: sa.Connection, sweep: Sweep) -> list[Any]:
        known = RECORDS.c.kind == "Command", RECORDS.c.number <= self.state.number
        return [record.event for record in records_where(connection, sweep, *known)]

    def _condense(self, numbers: Sequence[int]) -> None:
        """Leave out the reports of finished trials that nobody needs."""
        state, spec = self.state, self.state.spec
        for number in () if self._whole else numbers:
            trial = state.trials[number]
            if trial.state.finished and len(trial.reports) > len(spec.goals) + 1:
                state.trials[number] = condensed(trial, spec.goals, spec.constraints)
                state.whole = False
