"""The writing side of a sweep, for the one process that holds it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from automl.core import SweepState
from automl.errors import StoreError

from . import snapshots
from .backup import Backups
from .head import Head
from .lease import Lease, LeaseRow, clock, shown_state
from .lock import FileLock
from .pending import PendingEvents
from .reader import Reader, Sweep, advance, chunks
from .records import Place, Row, chained, decoded, dumps
from .schema import RECORDS, SWEEPS
from .store_errors import DamageError, retry, translate_decoding_errors, translate_errors

_LOG = logging.getLogger(__name__)
_INSERT = RECORDS.insert()  # built once: to build it takes longer than to run it
_LOCK = sa.select(SWEEPS.c.id).where(SWEEPS.c.id == sa.bindparam("_sweep")).with_for_update()


class Recorder(PendingEvents):
    """A `SweepRecorder`: `commit` appends all events to the log in one transaction.

    Args:
        engine, reader: of the database; store: its name, for messages.
        sweep: that is held; lease: the proof.
        state, place: of the sweep when it was taken.
        last: the lease before this one; None if nobody has held the sweep.
        lock, backups, head: of a SQLite file; None for a server.
    """

    def __init__(
        self,
        engine: sa.Engine,
        reader: Reader,
        store: str,
        sweep: Sweep,
        lease: Lease,
        state: SweepState,
        place: Place,
        last: LeaseRow | None,
        *,
        lock: FileLock | None,
        backups: Backups | None = None,
        head: Head | None = None,
    ) -> None:
        super().__init__(state)
        self.taken = place.number
        self.seconds: float = last["seconds"] if last else state.seconds
        self.earlier_state = shown_state(last, state.closed)
        self._reader = reader
        self._store = store
        self._sweep = sweep
        self._lease = lease
        self._place = place
        self._tried: list[Row] = []  # by a commit whose answer did not come
        self._is_deleted = False
        self._lock = lock
        self._backups = backups
        self._head = head
        self._taken_at = time.time()
        self._heartbeat = last["heartbeat"] if last else self._taken_at
        self._clock_ahead = lease.heartbeat - self._taken_at  # of the server's clock, before ours
        # One connection stays open: closing SQLite's last connection takes longer than a commit.
        self._connection = engine.connect().execution_options(write=True)
        self._cached = place.number  # number of the record of the last snapshot, or nearly
        self._note_head()

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Append the queued events, renew the lease, and take in what others have recorded.

        Args:
            seconds: of the sweep so far.
            status: of the controller, for those who watch the sweep.

        Raises:
            StoreError: the store cannot be written to, or another process has taken the sweep
                over. The events stay queued.
        """
        values: dict[str, Any] = {"num_trials": len(self.state.trials), "closed": self.state.closed}
        if seconds is not None:
            values["seconds"] = float(seconds)
        if status is not None:
            values["status"] = dumps(status)
        self._write(values)
        if self._events:  # they came after a commit whose answer was lost
            self._write(values)
        self.seconds = self.seconds if seconds is None else seconds
        if self._place.number > 2 * self._cached + 2000:
            self._cache()
        if self._backups:
            self._backups.tick()

    def look(self) -> None:
        """Take in what others have recorded since. It takes no lock."""

        if self._tried:
            return  # the next commit tells which of these records are of this process
        connection = self._connection.execution_options(write=False)
        try:
            with translate_errors(self._store), translate_decoding_errors(self._store):
                self._take_in(retry(self._unseen))
        finally:
            connection.execution_options(write=True)

    def clock(self) -> float:
        """Seconds since 1970 on the clock of the store, which all its users share."""
        return time.time() + self._clock_ahead

    def absence(self, until: float) -> float:
        """For how long nobody held the sweep before it was taken, up to `until` on that clock."""
        return max(0.0, min(self._taken_at + self._clock_ahead, until) - self._heartbeat)

    def forget(self) -> None:
        """The sweep was deleted: `release` writes nothing."""
        self._is_deleted = True

    def release(self) -> None:
        """Let another controller hold the sweep. If this cannot be written, the lease runs out."""
        if not self._is_deleted and self._place.number > 1.05 * self._cached + 200:
            self._cache()
        try:
            if not self._is_deleted:
                with translate_errors(self._store), self._connection.begin():
                    self._lease.give_up(self._connection)
        except StoreError as error:
            _LOG.warning("%s", error)
        finally:
            self._connection.close()
            if self._lock:
                self._lock.release()
        if self._head:
            self._head.flush()
        if self._backups:
            self._backups.close()

    def _write(self, values: Mapping[str, Any]) -> None:
        with translate_errors(self._store), translate_decoding_errors(self._store):
            num_stored, others, mine = retry(lambda: self._write_once(values))
            self._tried = []
            del self._events[:num_stored]
            if others:
                self._take_in(others)
            if mine:
                self._place = max(self._place, Place(mine[-1].number, mine[-1].sum))
            self.state.number = self._place.number
        self._note_head()

    def _write_once(self, values: Mapping[str, Any]) -> tuple[int, list[Row], list[Row]]:
        """One try at a commit.

        Returns:
            How many queued events are stored now; the rows of others; the rows of this process.
        """
        connection, sweep = self._connection, self._sweep
        with connection.begin():
            if connection.execute(_LOCK, {"_sweep": sweep.id}).first() is None:
                raise DamageError(f"the row of sweep {sweep.name!r} is missing")
            now = clock(connection)
            self._clock_ahead = now - time.time()
            self._lease.renew(connection, now, **values)
            unseen = [row for rows in chunks(connection, sweep, self._place) for row in rows]
            tried = {row.sum for row in self._tried}
            if any(row.sum in tried for row in unseen):
                mine = self._tried  # stored, and only the answer was lost
            else:
                newest = unseen[-1] if unseen else None
                place = Place(newest.number, newest.sum) if newest else self._place
                mine = self._tried = chained(sweep.id, place, self._events, now)
                if mine:
                    connection.execute(_INSERT, [row._asdict() for row in mine])
            stored = {row.sum for row in mine}
            return len(mine), [row for row in unseen if row.sum not in stored], mine

    def _unseen(self) -> list[Row]:
        with self._connection.begin():
            found = chunks(self._connection, self._sweep, self._place)
            return [row for rows in found for row in rows]

    def _take_in(self, rows: list[Row]) -> None:
        """Apply what others have recorded."""
        if rows:
            advance(self.state, decoded(rows))
            self._place = max(self._place, Place(rows[-1].number, rows[-1].sum))

    def _note_head(self) -> None:
        if self._head:
            self._head.write(self._sweep.id, self._place)

    def _cache(self) -> None:
        """Keep the state for readers. If this fails, they read the whole log."""
        if self._events:
            return
        self._cached = self._place.number
        try:
            with translate_errors(self._store), self._connection.begin():
                snapshots.write(self._connection, self._sweep.id, self.state, self._place)
        except StoreError as error:
            _LOG.warning("%s", error)
