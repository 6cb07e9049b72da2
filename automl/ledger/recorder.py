"""The writing side of a sweep, for the one controller that holds it."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from automl.core import Command, Trial
from automl.errors import StoreError

from .audit import NONE_READ
from .backup import Backups
from .batch import Batch, Totals, make_batch
from .lease import Lease, clock
from .lock import FileLock
from .newest import NewestCommits
from .pending import PendingEvents
from .progress import read_progress, write_progress
from .reader import Reader, SweepContents
from .schema import NEW_COMMANDS, STOP_REQUESTED, TRIALS
from .statements import INSERT_EVENTS, INSERT_REPORTS, INSERT_TRIALS, REPLACE_TRIALS, keyed
from .store_errors import retry, translate_errors

_LOG = logging.getLogger(__name__)


class Recorder(PendingEvents):
    """Folds events into trials at once; `commit` writes all of them in one transaction.

    Act on an event only after its commit. Used from one thread.

    Args:
        engine, reader: of the database.
        lease: the sweep, and the proof that this process holds it.
        contents: of the sweep when it was taken.
        lock, backups, newest: of a SQLite file; None for a server.

    Attributes:
        earlier_state: of the sweep before it was taken, as it was stored.
    """

    def __init__(
        self,
        engine: sa.Engine,
        reader: Reader,
        lease: Lease,
        contents: SweepContents,
        *,
        lock: FileLock | None,
        backups: Backups | None = None,
        newest: NewestCommits | None = None,
    ) -> None:
        super().__init__(contents.trials)
        self._reader = reader
        self.seconds: float = contents.sweep["seconds"]
        self._name: str = contents.sweep["name"]
        self._lease = lease
        self._lock = lock
        self._backups = backups
        self._newest = newest
        self._commits = 0
        self._has_new_commands = True
        self._commands = NONE_READ
        self.earlier_state: str = contents.sweep["state"]
        self._taken = time.time()
        self._heartbeat = contents.holder["heartbeat"] if contents.holder else self._taken
        self._clock_ahead = lease.heartbeat - self._taken  # of the server's clock, before ours
        self._executed = contents.executed
        self._begun = contents.begun
        self._totals = Totals.of(contents)
        self._batch: Batch | None = None
        # One connection stays open: closing SQLite's last connection takes longer than a commit.
        self._connection = engine.connect().execution_options(write=True)
        self._acknowledge()

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
        given = (("seconds", seconds), ("state", state))
        values = {key: value for key, value in given if value is not None}
        stop = self._write(values, status)
        if self._events:  # they came after a commit that had failed
            stop = self._write(values, status)
        self.seconds = self.seconds if seconds is None else seconds
        if self._backups:
            self._backups.tick()
        return stop

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began, as committed; 0 if it is not."""
        return self._begun.get(trial.number, 0.0)

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store, which all its users share."""
        return time.time() + self._clock_ahead

    def absence(self, until: float) -> float:
        """For how long nobody held the sweep before it was taken, up to `until` on that clock."""
        return max(0.0, min(self._taken + self._clock_ahead, until) - self._heartbeat)

    def look(self) -> bool:
        """Look for new commands; True if somebody asked the sweep to stop. It takes no lock."""
        flags = self._reader.sweep(self._name)["stop_requested"]
        self._has_new_commands |= bool(flags & NEW_COMMANDS)
        return bool(flags & STOP_REQUESTED)

    def new_commands(self, *, refresh: bool = False) -> list[tuple[int, Command]]:
        """Commands that were not returned before: identity and command, in order.

        Args:
            refresh: look into the database now, instead of relying on the last commit.
        """
        if not refresh and not self._has_new_commands:
            return []
        with translate_errors(self._lease.store):
            # The flag goes first: a command that comes before the query sets it again.
            self._has_new_commands |= retry(self._take_flag)
        if not self._has_new_commands:
            return []
        new, self._commands = self._reader.commands(self._name, self._commands)
        self._has_new_commands = False
        return new

    def executed_commands(self) -> set[int]:
        """Identities of the commands that have become trials or were answered."""
        return set(self._executed)

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
        if self._newest:
            self._newest.flush()
        if self._backups:
            self._backups.close()

    def _take_flag(self) -> bool:
        """Whether there are new commands, as the flag says, which is then cleared."""
        connection = self._connection
        with connection.begin():
            row = read_progress(connection, self._lease.store, self._lease.sweep)
            flags = row["stop_requested"]
            if flags & NEW_COMMANDS:
                write_progress(connection, row | {"stop_requested": flags & ~NEW_COMMANDS})
        return bool(flags & NEW_COMMANDS)

    def _write(self, values: Mapping[str, Any], status: Mapping[str, Any] | None) -> bool:
        """Store one batch. If this fails, the same batch is tried again by the next commit."""
        if self._batch is None:
            sweep, now = self._lease.sweep, time.time()
            self._batch = make_batch(sweep, self._events, self.trials, self._totals, now)
        batch = self._batch
        with translate_errors(self._lease.store):
            stop = retry(lambda: self._commit_once(batch, values, status))
        self._batch = None
        self._commits += 1
        self._totals.holder.update(batch.totals.holder)
        self._totals.trials.update(batch.totals.trials)
        self._begun.update(batch.begun)
        self._executed |= batch.executed
        del self._events[: batch.num_events]
        self._acknowledge()
        return stop

    def _acknowledge(self) -> None:
        if self._newest:
            last_event = self._totals.holder["last_event"]
            lease = self._lease
            self._newest.note_commit(lease.sweep, lease.fence, self._commits, last_event)

    def _commit_once(
        self, batch: Batch, values: Mapping[str, Any], status: Mapping[str, Any] | None
    ) -> bool:
        """One try at a commit; True if somebody asked the sweep to stop."""
        connection, lease = self._connection, self._lease
        with connection.begin():
            row = read_progress(connection, lease.store, lease.sweep)
            now, totals = clock(connection), batch.totals.holder
            self._clock_ahead = now - time.time()
            if lease.renew(connection, self._commits, now, status, totals):
                self._write_events(batch)
                if values:
                    write_progress(connection, {**row, **values})
            self._has_new_commands |= bool(row["stop_requested"] & NEW_COMMANDS)
            return bool(row["stop_requested"] & STOP_REQUESTED)

    def _write_events(self, batch: Batch) -> None:
        changed = [keyed(TRIALS, row) for row in batch.changed_trials]
        for statement, rows in (
            (INSERT_TRIALS, batch.new_trials),
            (REPLACE_TRIALS, changed),
            (INSERT_REPORTS, batch.reports),
            (INSERT_EVENTS, batch.events),
        ):
            if rows:
                self._connection.execute(statement, rows)
