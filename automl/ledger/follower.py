"""Reads the log of a sweep: after the first time, a follower reads only what is new."""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from automl.core import Command, Snapshot, SweepEvent, SweepState
from automl.errors import UsageError
from search_spaces.plugins import nearest

from .database import SWEEPS, Database, Sweep, storable
from .hold import shown_state
from .log import apply, records_after

MAX_COMMANDS: Final = 1000  # the newest ones, that are kept
T = TypeVar("T")


def read_sweep(database: Database, name: str, read: Callable[[sa.Connection, Sweep], T]) -> T:
    """What a function reads of a sweep, in one transaction; waits for a server that restarts.

    Raises:
        StoreError: what it reads is damaged.
        UsageError: there is no such sweep.
    """

    def find(connection: sa.Connection) -> list[T]:
        found = database.sweeps(connection, SWEEPS.c.name == storable(name))
        if not found:
            database.check_rows(connection)
        return [read(connection, sweep) for sweep in found]

    collects = gc.isenabled()
    gc.disable()  # it would scan all rows again and again
    try:
        found = database.run(find)
    finally:
        if collects:
            gc.enable()
    if found:
        return found[0]
    names = [sweep.name for sweep in database.run(database.sweeps)]
    hint = nearest(name, names) if names else "it has no sweeps yet"
    if name.endswith((".yaml", ".yml")):
        hint = f"`automl sweep {name}` runs a configuration, and with --create only creates it"
    raise UsageError(f"there is no sweep named {name!r} in {database.name}: {hint}")


def catch_up(connection: sa.Connection, sweep: Sweep, state: SweepState) -> SweepState:
    """Apply the records to a state that it does not know."""
    for records in records_after(connection, sweep, state.number):
        apply(state, records)
    return state


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        database: of the store; name: of the sweep.

    Attributes:
        state: of the sweep.
        commands: the newest commands to the sweep, in order.
        events: that the latest `refresh` has read, if it did not read all of them.
        epoch: grows if the sweep was replaced by another one of its name.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._sweep: Sweep | None = None
        self._known: tuple[int, float] | None = None  # its id and when it was created
        self.state = SweepState()
        self.commands: deque[Command] = deque(maxlen=MAX_COMMANDS)
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
        is_new = self._known != (sweep.id, sweep.created)
        if is_new:
            self.state = SweepState()
            self.commands.clear()
            self.epoch += 1
        self._sweep, self._known, self.events = sweep, (sweep.id, sweep.created), []
        changed: set[int] = set()
        for records in records_after(connection, sweep, self.state.number):
            events = [record.event for record in records]
            self.events += [] if is_new else events
            self.commands += [event for event in events if isinstance(event, Command)]
            changed |= apply(self.state, records)
        return sorted(changed)
