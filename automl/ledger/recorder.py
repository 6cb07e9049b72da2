"""The writing side of a sweep, for the one controller that holds it."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from automl.core.events import Begun, Ended, Moved, Noted, Proposed, SweepEvent, Wished, fold
from automl.core.trial import Trial, TrialState
from automl.errors import StoreError
from workers.protocol import Report, Started

from . import rows as codec
from .backup import Backups
from .lease import FileLock, process_started
from .schema import ATTEMPTS, EVENTS, HOLDERS, REPORTS, STOP, SWEEPS, TRIALS, WISHED
from .trouble import persistently, reading, translated

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Recorder:
    """Folds events into trials at once and writes them at `commit`, all that came together in one transaction.

    Nothing may be acted on before it is committed. Used from one thread.

    Args:
        trials: every trial of the sweep by number; the list grows and its items are replaced as events come.
        fence: the number under which the sweep is held; a larger one in the ledger ends this recorder.
        lock, backups: of a SQLite file, None for a server.
    """

    def __init__(
        self,
        engine: sa.Engine,
        store: str,
        sweep: int,
        trials: list[Trial],
        *,
        fence: int,
        lock: FileLock | None,
        backups: Backups | None = None,
    ) -> None:
        self._engine, self._store, self._sweep, self._fence, self._lock = (
            engine,
            store,
            sweep,
            fence,
            lock,
        )
        self._backups, self._commits = backups, 0
        self._wished, self._known_wishes = True, set[int]()
        self.trials = trials
        self._stored = len(trials)
        self._events: list[SweepEvent] = []
        # Kept open: the last connection to close writes SQLite's log back, which takes longer than a commit.
        self._connection = engine.connect().execution_options(write=True)

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None where the event changes nothing: a duplicate, or late."""
        if isinstance(event, Noted | Wished):
            self._events.append(event)
            return None
        known = event.trial < len(self.trials)
        if not known and event.trial != len(self.trials):
            raise StoreError(
                f"the next trial of the sweep is {len(self.trials)}, got {event.trial}"
            )
        before = self.trials[event.trial] if known else None
        after = fold(before, event)
        if after is None or after is before:
            return None
        if known:
            self.trials[event.trial] = after
        else:
            self.trials.append(after)
        self._events.append(event)
        return after

    def commit(
        self,
        seconds: float | None = None,
        *,
        state: str | None = None,
        status: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write what was applied, and the sign of life; whether somebody asked the sweep to stop.

        Args:
            seconds: of the sweep so far; state: of the sweep; status: of the controller, for whoever watches.

        Raises:
            StoreError: the store cannot be written to, or another controller has taken the sweep over. What was
                applied stays uncommitted.
        """
        values = {
            key: value
            for key, value in (("seconds", seconds), ("state", state))
            if value is not None
        }
        with translated(self._store):
            stop = persistently(lambda: self._commit_once(values, status))
        self._commits += 1
        self._stored = len(self.trials)
        self._events.clear()
        if self._backups:
            self._backups.tick()
        return stop

    @property
    def uncommitted(self) -> int:
        """How many events wait for a commit."""
        return len(self._events)

    def begun(self, trial: Trial) -> float:
        """When the trial's last attempt began, as it is committed; 0 where it is not."""
        key = (ATTEMPTS.c.sweep == self._sweep) & (ATTEMPTS.c.trial == trial.number)
        query = sa.select(ATTEMPTS.c.begun).where(key & (ATTEMPTS.c.attempt == trial.attempts))
        return float(self._read(lambda connection: connection.scalar(query)) or 0.0)

    def wishes(self, *, look: bool = False) -> list[tuple[int, Wished]]:
        """What people have asked of the sweep that was not taken up before: identity and wish, in order.

        Args:
            look: at the ledger now; otherwise as the last commit found it.
        """
        if look and not self._wished:
            query = sa.select(SWEEPS.c.stop_requested).where(SWEEPS.c.id == self._sweep)
            self._wished = bool(
                (self._read(lambda connection: connection.scalar(query)) or 0) & WISHED
            )
        if not self._wished:
            return []
        mine, known = EVENTS.c.sweep == self._sweep, self._known_wishes
        with translated(self._store):
            persistently(
                self._mark_seen
            )  # before they are read: one that comes between is seen again
        wished = sa.select(EVENTS.c.id, EVENTS.c.payload).where(
            mine, EVENTS.c.kind == Wished.__name__
        )
        found = self._read(
            lambda connection: connection.execute(wished.order_by(EVENTS.c.id)).all()
        )
        rows = [row for row in found if row.id not in known]
        self._wished = False
        known.update(row.id for row in rows)
        return [(row.id, Wished(**json.loads(row.payload))) for row in rows]

    def _mark_seen(self) -> None:
        seen = SWEEPS.c.stop_requested.bitwise_and(~WISHED)
        with self._connection.begin():
            self._connection.execute(
                SWEEPS.update().where(SWEEPS.c.id == self._sweep).values(stop_requested=seen)
            )

    def fulfilled(self) -> set[int]:
        """Which wishes have become trials."""
        query = sa.select(EVENTS.c.payload).where(
            EVENTS.c.sweep == self._sweep, EVENTS.c.kind == Proposed.__name__
        )
        rows = self._read(lambda connection: connection.execute(query).all())
        wishes = (json.loads(row.payload).get("wish") for row in rows)
        return {wish for wish in wishes if wish is not None}

    def release(self) -> None:
        """Let another controller hold the sweep; where that cannot be written, its lock or lease runs out."""
        mine = (HOLDERS.c.sweep == self._sweep) & (HOLDERS.c.fence == self._fence)
        try:
            with translated(self._store), self._connection.begin():
                self._connection.execute(HOLDERS.update().where(mine).values(held=0))
        except StoreError as error:
            _LOG.warning("%s", error)
        finally:
            self._connection.close()
            if self._lock:
                self._lock.release()
        if self._backups:
            self._backups.close()

    def _read(self, read: Callable[[sa.Connection], T]) -> T:
        return reading(self._engine, self._store, read)

    def _commit_once(self, values: Mapping[str, Any], status: Mapping[str, Any] | None) -> bool:
        """One try at a commit; whether somebody asked the sweep to stop."""
        connection = self._connection
        with connection.begin():
            if self._claim(connection, status):
                self._write_events(connection)
                if values:
                    connection.execute(
                        SWEEPS.update().where(SWEEPS.c.id == self._sweep).values(values)
                    )
            asked = (
                connection.scalar(
                    sa.select(SWEEPS.c.stop_requested).where(SWEEPS.c.id == self._sweep)
                )
                or 0
            )
            self._wished |= bool(asked & WISHED)
            return bool(asked & STOP)

    def _claim(self, connection: sa.Connection, status: Mapping[str, Any] | None) -> bool:
        """Count this commit, with a sign of life; False where it was made already and only the answer was lost.

        Raises:
            StoreError: the sweep is held under another number.
        """
        values: dict[str, Any] = {"heartbeat": clock(connection), "commits": self._commits + 1}
        if status is not None:
            values["status"] = codec.dumps(status)
        mine = (
            (HOLDERS.c.sweep == self._sweep)
            & (HOLDERS.c.fence == self._fence)
            & (HOLDERS.c.held == 1)
        )
        if connection.execute(
            HOLDERS.update().where(mine, HOLDERS.c.commits == self._commits).values(values)
        ).rowcount:
            return True
        if connection.scalar(sa.select(HOLDERS.c.commits).where(mine)) == self._commits + 1:
            return False
        raise StoreError(
            f"{self._store}: another controller has taken the sweep over; this one ends"
        )

    def _write_events(self, connection: sa.Connection) -> None:
        numbers = {
            event.trial
            for event in self._events
            if event.trial is not None and not isinstance(event, Noted | Wished)
        }
        rows = [codec.trial_row(self._sweep, self.trials[number]) for number in sorted(numbers)]
        _insert(connection, TRIALS, [row for row in rows if row["number"] >= self._stored])
        _update(
            connection,
            TRIALS,
            ("sweep", "number"),
            [row for row in rows if row["number"] < self._stored],
        )
        reports = [event for event in self._events if isinstance(event, Report)]
        _insert(connection, REPORTS, [codec.report_row(self._sweep, report) for report in reports])
        others = [event for event in self._events if not isinstance(event, Report)]
        now = time.time()
        _insert(connection, EVENTS, [codec.event_row(self._sweep, event, now) for event in others])
        _insert(
            connection,
            ATTEMPTS,
            [self._begun_row(event) for event in others if isinstance(event, Begun)],
        )
        kinds = ((Started, self._started_row), (Ended, self._ended_row), (Moved, self._moved_row))
        for kind, row_of in kinds:
            rows = [row_of(event) for event in others if isinstance(event, kind)]
            _update(
                connection, ATTEMPTS, ("sweep", "trial", "attempt"), [row for row in rows if row]
            )

    def _begun_row(self, event: Begun) -> codec.Row:
        return {
            "sweep": self._sweep,
            "trial": event.trial,
            "attempt": event.attempt,
            "begun": event.at,
        }

    def _started_row(self, event: Any) -> codec.Row:
        key = {"sweep": self._sweep, "trial": event.trial, "attempt": event.attempt}
        return {**key, "worker": codec.storable(event.worker)}

    def _ended_row(self, event: Any) -> codec.Row:
        outcome = event.outcome
        return {
            "sweep": self._sweep,
            "trial": event.trial,
            "attempt": outcome.attempt,
            "ended": event.at,
            "ending": str(outcome.ending),
            "failure": event.failure or outcome.failure,
            "message": codec.storable(event.message or outcome.message),
            "seconds": outcome.seconds,
            "peak_memory_bytes": outcome.peak_memory_bytes,
        }

    def _moved_row(self, event: Any) -> codec.Row:
        """An attempt that was lost with its controller has no outcome."""
        if event.state is not TrialState.INTERRUPTED:
            return {}
        key = {
            "sweep": self._sweep,
            "trial": event.trial,
            "attempt": self.trials[event.trial].attempts,
        }
        return {
            **key,
            "ended": event.at,
            "ending": "lost",
            "message": codec.storable(event.reason),
            "seconds": event.seconds,
        }


def hold(connection: sa.Connection, sweep: int) -> int:
    """Write this process into the sweep's holder row and return its fencing number, larger than any before."""
    last = connection.scalar(sa.select(HOLDERS.c.fence).where(HOLDERS.c.sweep == sweep))
    fence = int(last or 0) + 1
    row: codec.Row = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": process_started(os.getpid()),
        "heartbeat": clock(connection),
        "fence": fence,
        "held": 1,
        "status": "{}",
        "commits": 0,
    }
    if last is None:
        connection.execute(HOLDERS.insert().values({"sweep": sweep, **row}))
    else:
        connection.execute(HOLDERS.update().where(HOLDERS.c.sweep == sweep).values(row))
    return fence


def clock(connection: sa.Connection) -> Any:
    """Now, in seconds since 1970, on the one clock that all controllers of a server share."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return time.time()


def _insert(connection: sa.Connection, table: sa.Table, rows: list[codec.Row]) -> None:
    if rows:
        connection.execute(table.insert(), rows)


def _update(
    connection: sa.Connection, table: sa.Table, keys: tuple[str, ...], rows: list[codec.Row]
) -> None:
    if not rows:
        return
    where = sa.and_(*(table.c[key] == sa.bindparam(f"_{key}") for key in keys))
    values: dict[str, Any] = {name: sa.bindparam(name) for name in rows[0] if name not in keys}
    named = [
        {f"_{key}" if key in keys else key: value for key, value in row.items()} for row in rows
    ]
    connection.execute(table.update().where(where).values(values), named)
