"""The writing side of a sweep, for the one controller that holds it."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from automl.core import Begun, Command, Ended, Moved, Noted, Proposed, Trial, TrialState
from automl.errors import StoreError
from workers.protocol import Report, Started

from . import rows
from .backup import Backups
from .lease import Lease
from .lock import FileLock
from .pending import PendingEvents
from .schema import ATTEMPTS, EVENTS, NEW_COMMANDS, REPORTS, STOP_REQUESTED, SWEEPS, TRIALS
from .store_errors import read_with_retry, retry, translate_errors

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Recorder(PendingEvents):
    """Folds events into trials at once; `commit` writes all of them in one transaction.

    Act on an event only after its commit. Used from one thread.

    Args:
        engine: of the database.
        lease: the sweep, and the proof that this process holds it.
        trials: every trial by number; the list grows and its items are replaced as events come.
        lock, backups: of a SQLite file; None for a server.
    """

    def __init__(
        self,
        engine: sa.Engine,
        lease: Lease,
        trials: list[Trial],
        *,
        lock: FileLock | None,
        backups: Backups | None = None,
    ) -> None:
        super().__init__(trials)
        self._engine = engine
        self._lease = lease
        self._lock = lock
        self._backups = backups
        self._commits = 0
        self._has_new_commands = True
        self._seen_commands: set[int] = set()
        self._stored = len(trials)
        # One connection stays open: closing SQLite's last connection takes longer than a commit.
        self._connection = engine.connect().execution_options(write=True)

    def commit(
        self,
        seconds: float | None = None,
        *,
        state: str | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write the applied events and the heartbeat; True if somebody asked the sweep to stop.

        Args:
            seconds: of the sweep so far; state: of the sweep.
            status: of the controller, for those who watch the sweep.

        Raises:
            StoreError: the store cannot be written to, or another controller has taken the sweep
                over. The events stay uncommitted.
        """
        values = {
            key: value
            for key, value in (("seconds", seconds), ("state", state))
            if value is not None
        }
        with translate_errors(self._lease.store):
            stop = retry(lambda: self._commit_once(values, status))
        self._commits += 1
        self._stored = len(self.trials)
        self._events.clear()
        if self._backups:
            self._backups.tick()
        return stop

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began, as committed; 0 if it is not."""
        key = (ATTEMPTS.c.sweep == self._lease.sweep) & (ATTEMPTS.c.trial == trial.number)
        query = sa.select(ATTEMPTS.c.begun).where(key & (ATTEMPTS.c.attempt == trial.attempts))
        return float(self._read(lambda connection: connection.scalar(query)) or 0.0)

    def new_commands(self, *, refresh: bool = False) -> list[tuple[int, Command]]:
        """Commands that were not returned before: identity and command, in order.

        Args:
            refresh: look into the database now, instead of relying on the last commit.
        """
        if refresh and not self._has_new_commands:
            flags = self._read(self._flags)
            self._has_new_commands = bool(flags & NEW_COMMANDS)
        if not self._has_new_commands:
            return []
        with translate_errors(self._lease.store):
            # The flag goes first: a command that comes before the query is then found twice.
            retry(self._clear_flag)
        query = (
            sa.select(EVENTS.c.id, EVENTS.c.payload)
            .where(EVENTS.c.sweep == self._lease.sweep, EVENTS.c.kind == rows.COMMAND)
            .order_by(EVENTS.c.id)
        )
        found = self._read(lambda connection: connection.execute(query).all())
        new = [row for row in found if row.id not in self._seen_commands]
        self._has_new_commands = False
        self._seen_commands.update(row.id for row in new)
        return [(row.id, Command(**json.loads(row.payload))) for row in new]

    def _clear_flag(self) -> None:
        flags = SWEEPS.c.stop_requested.bitwise_and(~NEW_COMMANDS)
        with self._connection.begin():
            self._connection.execute(self._update_sweep().values(stop_requested=flags))

    def executed_commands(self) -> set[int]:
        """Identities of the commands that have become trials."""
        query = sa.select(EVENTS.c.payload).where(
            EVENTS.c.sweep == self._lease.sweep, EVENTS.c.kind == Proposed.__name__
        )
        found = self._read(lambda connection: connection.execute(query).all())
        commands = (rows.command_of(row.payload) for row in found)
        return {command for command in commands if command is not None}

    def release(self) -> None:
        """Let another controller hold the sweep. If this cannot be written, the lease runs out."""
        try:
            with translate_errors(self._lease.store), self._connection.begin():
                self._lease.give_up(self._connection)
        except StoreError as error:
            _LOG.warning("%s", error)
        finally:
            self._connection.close()
            if self._lock:
                self._lock.release()
        if self._backups:
            self._backups.close()

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        return read_with_retry(self._engine, self._lease.store, read)

    def _flags(self, connection: sa.Connection) -> int:
        query = sa.select(SWEEPS.c.stop_requested).where(SWEEPS.c.id == self._lease.sweep)
        return connection.scalar(query) or 0

    def _update_sweep(self) -> sa.Update:
        return SWEEPS.update().where(SWEEPS.c.id == self._lease.sweep)

    def _commit_once(self, values: Mapping[str, Any], status: Mapping[str, Any] | None) -> bool:
        """One try at a commit; True if somebody asked the sweep to stop."""
        connection = self._connection
        with connection.begin():
            if self._lease.renew(connection, self._commits, status):
                self._write_events(connection)
                if values:
                    connection.execute(self._update_sweep().values(values))
            flags = self._flags(connection)
            self._has_new_commands |= bool(flags & NEW_COMMANDS)
            return bool(flags & STOP_REQUESTED)

    def _write_events(self, connection: sa.Connection) -> None:
        events, sweep = self._events, self._lease.sweep
        numbers = {
            event.trial
            for event in events
            if event.trial is not None and not isinstance(event, Noted | Command)
        }
        trials = [rows.trial_row(sweep, self.trials[number]) for number in sorted(numbers)]
        _insert(connection, TRIALS, [row for row in trials if row["number"] >= self._stored])
        changed = [row for row in trials if row["number"] < self._stored]
        _update(connection, TRIALS, ("sweep", "number"), changed)
        reports = [rows.report_row(sweep, event) for event in events if isinstance(event, Report)]
        _insert(connection, REPORTS, reports)
        others = [event for event in events if not isinstance(event, Report)]
        now = time.time()
        _insert(connection, EVENTS, [rows.event_row(sweep, event, now) for event in others])
        begun = [
            {"sweep": sweep, "trial": event.trial, "attempt": event.attempt, "begun": event.at}
            for event in others
            if isinstance(event, Begun)
        ]
        _insert(connection, ATTEMPTS, begun)
        kinds = ((Started, self._started_row), (Ended, self._ended_row), (Moved, self._moved_row))
        for kind, row_of in kinds:
            attempts = [row_of(event) for event in others if isinstance(event, kind)]
            key = ("sweep", "trial", "attempt")
            _update(connection, ATTEMPTS, key, [row for row in attempts if row])

    def _started_row(self, event: Any) -> rows.Row:
        return {
            "sweep": self._lease.sweep,
            "trial": event.trial,
            "attempt": event.attempt,
            "worker": rows.storable(event.worker),
        }

    def _ended_row(self, event: Any) -> rows.Row:
        outcome = event.outcome
        return {
            "sweep": self._lease.sweep,
            "trial": event.trial,
            "attempt": outcome.attempt,
            "ended": event.at,
            "ending": str(outcome.ending),
            "failure": event.failure or outcome.failure,
            "message": rows.storable(event.message or outcome.message),
            "seconds": outcome.seconds,
            "peak_memory_bytes": outcome.peak_memory_bytes,
        }

    def _moved_row(self, event: Any) -> rows.Row:
        """The end of an attempt that was lost with its controller; empty for any other move."""
        if event.state is not TrialState.INTERRUPTED:
            return {}
        return {
            "sweep": self._lease.sweep,
            "trial": event.trial,
            "attempt": self.trials[event.trial].attempts,
            "ended": event.at,
            "ending": "lost",
            "message": rows.storable(event.reason),
            "seconds": event.seconds,
        }


def _insert(connection: sa.Connection, table: sa.Table, found: list[rows.Row]) -> None:
    if found:
        connection.execute(table.insert(), found)


def _update(
    connection: sa.Connection, table: sa.Table, keys: tuple[str, ...], found: list[rows.Row]
) -> None:
    if not found:
        return
    where = sa.and_(*(table.c[key] == sa.bindparam(f"_{key}") for key in keys))
    values: dict[str, Any] = {name: sa.bindparam(name) for name in found[0] if name not in keys}
    named = [
        {f"_{key}" if key in keys else key: value for key, value in row.items()} for row in found
    ]
    connection.execute(table.update().where(where).values(values), named)
