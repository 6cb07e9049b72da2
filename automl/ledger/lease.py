"""The lease on a sweep: the row of `holders` that says which controller holds it, and until when.

The functions with a `connection` run in its transaction.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import sqlalchemy as sa

from automl.errors import StoreError

from .rows import Row, checked, dumps
from .schema import HOLDERS

STALE_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0


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
    """`alive` for a row that `find_holder` has read."""
    return alive(
        holder["host"],
        holder["pid"],
        holder["process_started"],
        holder["now"] - holder["heartbeat"],
    )


def clock(connection: sa.Connection) -> Any:
    """Seconds since 1970 on the clock of the database server, which all its controllers share."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return time.time()


def find_holder(connection: sa.Connection, sweep: int) -> Mapping[str, Any] | None:
    """The row of a sweep, with `now` on the clock of its `heartbeat`; None if there is none."""
    moment = clock(connection)
    now = sa.literal(moment) if isinstance(moment, float) else moment
    query = sa.select(HOLDERS, now.label("now")).where(HOLDERS.c.sweep == sweep)
    found = connection.execute(query).mappings().first()
    return checked(HOLDERS, dict(found)) if found else None


def take(connection: sa.Connection, store: str, sweep: int) -> Lease:
    """Make this process the holder, under a fencing number that is larger than any before."""
    last = connection.scalar(sa.select(HOLDERS.c.fence).where(HOLDERS.c.sweep == sweep))
    fence = int(last or 0) + 1
    row: Row = {
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
    return Lease(store, sweep, fence)


@dataclass(frozen=True)
class Lease:
    """A sweep that this process holds.

    Args:
        store: its name, for messages; sweep: id of the sweep.
        fence: the fencing number. A larger one in the database ends this lease.
    """

    store: str
    sweep: int
    fence: int

    def renew(
        self, connection: sa.Connection, commits: int, status: Mapping[str, Any] | None
    ) -> bool:
        """Count one commit and set the heartbeat.

        Args:
            commits: number of earlier commits; status: of the controller, kept if it is None.

        Returns:
            False if this commit was stored already and only the server's answer was lost.

        Raises:
            StoreError: another controller holds the sweep.
        """
        values: dict[str, Any] = {"heartbeat": clock(connection), "commits": commits + 1}
        if status is not None:
            values["status"] = dumps(status)
        mine = self._row() & (HOLDERS.c.held == 1)
        counted = HOLDERS.update().where(mine, HOLDERS.c.commits == commits).values(values)
        if connection.execute(counted).rowcount:
            return True
        if connection.scalar(sa.select(HOLDERS.c.commits).where(mine)) == commits + 1:
            return False
        raise StoreError(
            f"{self.store}: another controller has taken the sweep over; this one ends"
        )

    def give_up(self, connection: sa.Connection) -> None:
        """Let another controller take the sweep."""
        connection.execute(HOLDERS.update().where(self._row()).values(held=0))

    def _row(self) -> sa.ColumnElement[bool]:
        return (HOLDERS.c.sweep == self.sweep) & (HOLDERS.c.fence == self.fence)
