"""The lease on a sweep: the row of `holders` that says which controller holds it, and until when.

The functions with a `connection` run in its transaction.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import sqlalchemy as sa

from automl.errors import StoreError

from .rows import Row, dumps
from .schema import HOLDERS
from .statements import RENEW, keyed
from .sums import HOLDER

STALE_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0
TOTALS: Final = ("num_trials", "trials_total", "num_events", "last_event")


def process_started(pid: int) -> float | None:
    """Start of a process, independent of clock changes; None if there is no such process."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        pass
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def alive(host: str, pid: int, started: float | None, age: float) -> bool:
    """Whether a controller still runs.

    Args:
        host, pid, started: its process. On this host, the process itself is looked up.
        age: seconds since its last heartbeat, which decides for another host. A heartbeat from the
            future is ignored, because it means that a clock was set.
    """
    if host == socket.gethostname():
        found = process_started(pid)
        return found is not None and (started is None or abs(found - started) < 2)
    return -FUTURE_SECONDS < age < STALE_SECONDS


def holder_alive(holder: Mapping[str, Any]) -> bool:
    """`alive` for a row of `holders` with `now`, the time on the clock of its `heartbeat`."""
    return alive(
        holder["host"],
        holder["pid"],
        holder["process_started"],
        holder["now"] - holder["heartbeat"],
    )


def clock(connection: sa.Connection) -> float:
    """Seconds since 1970 on the clock of the database server, which all its controllers share."""
    if connection.dialect.name != "postgresql":
        return time.time()
    now = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return float(connection.scalar(sa.select(now)) or 0.0)


def take(
    connection: sa.Connection,
    store: str,
    sweep: int,
    last: Mapping[str, Any] | None,
    status: Mapping[str, Any],
) -> Lease:
    """Make this process the holder, under a fencing number that is larger than any before.

    Args:
        last: the row of the last holder; None if there was none.
        status: of the controller until its first commit.
    """
    row: Row = {
        "sweep": sweep,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": process_started(os.getpid()),
        "heartbeat": clock(connection),
        "fence": last["fence"] + 1 if last else 1,
        "held": 1,
        "status": dumps(status),
        "commits": 0,
        **{name: last[name] if last else 0 for name in TOTALS},
    }
    sealed = HOLDER.seal(row)
    if last is None:
        connection.execute(HOLDERS.insert(), sealed)
    else:
        connection.execute(HOLDERS.update().where(HOLDERS.c.sweep == sweep).values(sealed))
    return Lease(store, sealed)


class Lease:
    """A sweep that this process holds. A larger fencing number in the database ends the lease.

    Args:
        store: its name, for messages; row: of `holders`, as `take` has written it.
    """

    def __init__(self, store: str, row: Row) -> None:
        self.store = store
        self._row = row

    @property
    def sweep(self) -> int:
        """Id of the sweep."""
        return int(self._row["sweep"])

    @property
    def heartbeat(self) -> float:
        """When it was taken or renewed last, on the server's `clock`."""
        return float(self._row["heartbeat"])

    @property
    def fence(self) -> int:
        """The fencing number."""
        return int(self._row["fence"])

    def renew(
        self,
        connection: sa.Connection,
        commits: int,
        now: float,
        status: Mapping[str, Any] | None,
        totals: Mapping[str, int],
    ) -> bool:
        """Count one commit and set the heartbeat.

        Args:
            commits: number of earlier commits; now: on the server's `clock`.
            status: of the controller, kept if it is None.
            totals: the columns `TOTALS` after the commit.

        Returns:
            False if this commit was stored already and only the server's answer was lost.

        Raises:
            StoreError: another controller holds the sweep.
        """
        changed: Row = {"heartbeat": now, "commits": commits + 1, **totals}
        if status is not None:
            changed["status"] = dumps(status)
        self._row = HOLDER.seal(self._row | changed)
        counted = keyed(HOLDERS, self._row) | {"_fence": self.fence, "_commits": commits}
        if connection.execute(RENEW, counted).rowcount:
            return True
        mine = self._mine() & (HOLDERS.c.held == 1)
        if connection.scalar(sa.select(HOLDERS.c.commits).where(mine)) == commits + 1:
            return False
        raise StoreError(
            f"{self.store}: another controller has taken the sweep over; this one ends"
        )

    def give_up(self, connection: sa.Connection) -> None:
        """Let another controller take the sweep."""
        found = connection.execute(sa.select(HOLDERS).where(self._mine())).mappings().first()
        if found:
            row = HOLDER.seal({**found, "held": 0})
            connection.execute(HOLDERS.update().where(self._mine()).values(row))

    def _mine(self) -> sa.ColumnElement[bool]:
        return (HOLDERS.c.sweep == self.sweep) & (HOLDERS.c.fence == self.fence)
