"""The writing side of a sweep, for the one process that holds it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from automl.core import SweepEvent, SweepState, Trial, TrialEvent
from automl.core.arguments import compact_json
from automl.errors import StoreError

from . import snapshots
from .database import Database
from .lease import Lease, LeaseRow, shown_state
from .limits import limited
from .lock import FileLock
from .reader import Sweep, append, find_sweep, lock_sweep, rows_after
from .records import Row, apply, decoded, rows_of
from .store_errors import retry, translated

_LOG = logging.getLogger(__name__)


class Recorder:
    """Holds a sweep; `commit` appends all events to its log in one transaction.

    Args:
        database: of the store.
        sweep: that is held; lease: the proof.
        state: of the sweep when it was taken.
        before: the lease before this one; None if nobody has held the sweep.
        lock: of a SQLite file; None for a server and in memory.

    Attributes:
        state: with the events that were applied and those that others have recorded.
        taken: number of the last record when the sweep was taken.
        seconds: wall-clock seconds of the sweep, as they were last committed.
        earlier_state: of the sweep before it was taken, as people saw it.
    """

    def __init__(
        self,
        database: Database,
        sweep: Sweep,
        lease: Lease,
        state: SweepState,
        before: LeaseRow | None,
        lock: FileLock | None,
    ) -> None:
        self.state = state
        self.taken = self._last = sweep.last
        self.seconds: float = before["seconds"] if before else state.seconds
        self.earlier_state = shown_state(before, state.closed)
        self._events: list[SweepEvent] = []  # that wait for a commit
        self._process = os.getpid()
        self._store = database.name
        self._sweep = sweep
        self._lease = lease
        self._tried: list[Row] = []  # by a commit whose answer did not come
        self._is_deleted = False
        self._lock = lock
        self._taken_at = time.time()
        self._heartbeat = before["heartbeat"] if before else self._taken_at
        self._clock_ahead = lease.heartbeat - self._taken_at  # of the store's clock, before ours
        # One connection stays open: closing SQLite's last connection takes longer than a commit.
        self._connection = database.connect()
        self._cached = sweep.last  # number of the record of the last snapshot, or nearly

    @property
    def uncommitted(self) -> int:
        """Number of events that wait for a commit."""
        return len(self._events)

    def apply(self, event: SweepEvent) -> Trial | None:
        """Queue an event for the next commit; the trial after it, None if it changes none.

        An event that changes nothing about its trial (a duplicate, or late) is not queued.
        """
        if os.getpid() != self._process:
            raise StoreError(
                f"sweep {self._sweep.name!r} is held by the process {self._process}, and this is "
                "another that was forked from it: write there"
            )
        event = limited(event)
        after = self.state.apply(event)
        if after is not None or not isinstance(event, TrialEvent):
            self._events.append(event)
        return after

    def commit(
        self, seconds: float | None = None, *, status: Mapping[str, Any] | None = None
    ) -> None:
        """Append the queued events, renew the lease, and take in what others have recorded.

        Act on an event only after its commit.

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
            values["status"] = compact_json(status)
        self._write(values)
        if self._events:  # they came after a commit whose answer was lost
            self._write(values)
        self.seconds = self.seconds if seconds is None else seconds
        if self._last > 2 * self._cached + 2000:
            self._cache()

    def look(self) -> None:
        """Take in what others have recorded since. It takes no lock."""
        if self._tried:
            return  # the next commit tells which of these records are of this process

        def read() -> list[Row]:
            with self._connection.transaction():
                sweep = find_sweep(self._connection, self._sweep)
                return list(rows_after(self._connection, sweep, self._last))

        with translated(self._store):
            self._take_in(retry(read))

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
        if not self._is_deleted and self._last > 1.05 * self._cached + 200:
            self._cache()
        try:
            if not self._is_deleted:
                with translated(self._store), self._connection.transaction(write=True):
                    self._lease.give_up(self._connection)
        except StoreError as error:
            _LOG.warning("%s", error)
        finally:
            self._connection.close()
            if self._lock:
                self._lock.release()

    def _write(self, values: Mapping[str, Any]) -> None:
        with translated(self._store):
            others, mine = retry(lambda: self._write_once(values))
            self._tried = []
            del self._events[: len(mine)]
            self._take_in(others)
            if mine:
                self._last = max(self._last, mine[-1].number)
            self.state.number = self._last

    def _write_once(self, values: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
        """One try at a commit.

        Returns:
            The new rows of others; the rows of queued events that are stored now.
        """
        connection = self._connection
        with connection.transaction(write=True):
            sweep = lock_sweep(connection, self._sweep)
            now = connection.clock()
            self._clock_ahead = now - time.time()
            self._lease.renew(connection, now, **values)
            unseen = list(rows_after(connection, sweep, self._last))
            if set(unseen).isdisjoint(self._tried):
                self._tried = rows_of(sweep.id, sweep.last, self._events, now)
                append(connection, sweep, self._tried)
                return unseen, self._tried
            # they are stored, and only the answer was lost
            return [row for row in unseen if row not in self._tried], self._tried

    def _take_in(self, rows: list[Row]) -> None:
        """Apply what others have recorded."""
        if rows:
            apply(self.state, decoded(rows))
            self._last = max(self._last, rows[-1].number)

    def _cache(self) -> None:
        """Keep the state for readers. If this fails, they read the whole log."""
        if self._events:
            return
        self._cached = self._last
        try:
            with translated(self._store), self._connection.transaction(write=True):
                snapshots.write(self._connection, self._sweep.id, self.state, self._last)
        except StoreError as error:
            _LOG.warning("%s", error)
