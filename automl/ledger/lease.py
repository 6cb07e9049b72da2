"""The lease on a sweep: the row of `leases` that says which process holds it, and until when.

The functions with a `connection` run in its transaction.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import sqlalchemy as sa

from automl.errors import StoreError

from .records import check_seal, dumps, seal
from .schema import LEASES
from .store_errors import DamageError, HeldError

STALE_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 5.0
LeaseRow = dict[str, Any]  # of `leases`, with `now`, the time on the clock of its `heartbeat`
_RENEW: Final = (
    LEASES.update()
    .where(
        LEASES.c.sweep == sa.bindparam("_sweep"),
        LEASES.c.fence == sa.bindparam("_fence"),
        LEASES.c.held == 1,
    )
    .values(
        {column.name: sa.bindparam(column.name) for column in LEASES.c if column.name != "sweep"}
    )
)  # built once: to build it takes longer than to run it


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


def holder_alive(lease: LeaseRow | None) -> bool:
    """Whether a process holds the sweep and still runs."""
    if lease is None or not lease["held"]:
        return False
    age = lease["now"] - lease["heartbeat"]
    return alive(lease["host"], lease["pid"], lease["process_started"], age)


def shown_state(lease: LeaseRow | None, closed: str) -> str:
    """The state of a sweep that people see; `closed` is how its last controller ended its run."""
    if lease is not None and lease["held"]:
        return "running" if holder_alive(lease) else "interrupted"
    return closed


def clock(connection: sa.Connection) -> float:
    """Seconds since 1970 on the clock of the database server, which all its controllers share."""
    if connection.dialect.name != "postgresql":
        return time.time()
    now = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return float(connection.scalar(sa.select(now)) or 0.0)


def read_leases(
    connection: sa.Connection, sweeps: Mapping[int, str] | None = None
) -> dict[int, LeaseRow]:
    """The leases of some sweeps, by id; `sweeps` has their names. None for all.

    Raises:
        DamageError: one has another checksum.
    """
    query = sa.select(LEASES)
    if sweeps is not None:
        query = query.where(LEASES.c.sweep.in_(sweeps))
    found = {row["sweep"]: dict(row) for row in connection.execute(query).mappings()}
    now = clock(connection) if found else 0.0
    for sweep, row in found.items():
        check_seal("lease", row, f"the lease of sweep {(sweeps or {}).get(sweep, sweep)!r}")
        _check_types(row)
        row["now"] = now
    return found


def new_lease(sweep: int, **values: Any) -> LeaseRow:
    """The lease of a sweep that nobody holds, sealed."""
    row = {
        "sweep": sweep,
        "host": "",
        "pid": 0,
        "process_started": None,
        "heartbeat": 0.0,
        "fence": 0,
        "held": 0,
        "commits": 0,
        "seconds": 0.0,
        "num_trials": 0,
        "closed": "interrupted",
        "status": "{}",
        **values,
    }
    return seal("lease", row)


class Lease:
    """A sweep that this process holds. A larger fencing number in the database ends the lease.

    Args:
        store: its name, for messages; row: of `leases`, as it was stored.
    """

    def __init__(self, store: str, row: LeaseRow) -> None:
        self._store = store
        self._row = row

    @classmethod
    def take(
        cls,
        connection: sa.Connection,
        store: str,
        sweep: int,
        last: LeaseRow | None,
        status: Mapping[str, Any],
    ) -> Lease:
        """Make this process the holder, under a fencing number that is larger than any before.

        Args:
            last: the present lease; status: of the controller until its first commit.
        """
        before = {k: v for k, v in (last or new_lease(sweep)).items() if k not in ("now", "sum")}
        changed = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": process_started(os.getpid()),
            "heartbeat": clock(connection),
            "fence": before["fence"] + 1,
            "held": 1,
            "commits": 0,
            "status": dumps(status),
        }
        row = seal("lease", before | changed)
        connection.execute(LEASES.delete().where(LEASES.c.sweep == sweep))
        connection.execute(LEASES.insert(), row)
        return cls(store, row)

    @property
    def heartbeat(self) -> float:
        """When it was taken or renewed last, on the server's `clock`."""
        return float(self._row["heartbeat"])

    def renew(self, connection: sa.Connection, now: float, **values: Any) -> None:
        """Set the heartbeat, count one commit, and change other columns.

        Args:
            now: on the server's `clock`.

        Raises:
            StoreError: another process holds the sweep.
        """
        changed = {"heartbeat": now, "commits": self._row["commits"] + 1, **values}
        row = {key: value for key, value in (self._row | changed).items() if key != "sum"}
        row = seal("lease", row)
        key = {"_sweep": row["sweep"], "_fence": row["fence"]}
        found = connection.execute(_RENEW, {**row, **key})
        if not found.rowcount:
            raise StoreError(
                f"{self._store}: another controller has taken the sweep over; this one ends"
            )
        self._row = row

    def give_up(self, connection: sa.Connection) -> None:
        """Let another process take the sweep."""
        self.renew(connection, clock(connection), held=0)


def refusal(sweep: str, lease: LeaseRow | None) -> HeldError:
    """The error for who comes second; `lease` is that of who came first, if it is known."""
    who = f"process {lease['pid']} on {lease['host']}" if lease else "another process"
    return HeldError(
        f"sweep {sweep!r} is held by {who}: wait for it, or stop it with `automl stop {sweep}`"
    )


def is_brief(lease: LeaseRow | None, locked: bool) -> bool:
    """Whether who holds a sweep does so for a moment only, or has just come.

    Args:
        locked: somebody has the lock of its folder, and writes the lease a moment later.
    """
    if lease is None:
        return False
    if locked and not holder_alive(lease):
        return True
    return bool(json.loads(lease["status"]).get("brief"))


def wait_until_free(read: Callable[[], LeaseRow | None], sweep: str) -> LeaseRow | None:
    """Check that no controller holds a sweep of a server.

    A controller with an old heartbeat is watched for a new one: some clock may have been set.

    Args:
        read: the lease as it is now.

    Returns:
        The lease. If it has changed when the sweep is taken, another controller was faster.

    Raises:
        HeldError: a controller holds the sweep.
    """
    first = lease = read()
    deadline = time.monotonic() + WATCH_SECONDS
    while lease and lease["held"]:
        if holder_alive(lease) or not is_same(lease, first):
            raise refusal(sweep, lease)
        if lease["host"] == socket.gethostname() or time.monotonic() > deadline:
            break
        time.sleep(WATCH_SECONDS / 20)
        lease = read()
    return first


def is_same(one: LeaseRow | None, other: LeaseRow | None) -> bool:
    """Whether nothing was committed between two looks at a lease."""
    return (one and one["sum"]) == (other and other["sum"])


def _check_types(row: LeaseRow) -> None:
    for name, value in row.items():
        kind = LEASES.c[name].type.python_type
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) and not (name == "process_started" and value is None):
            raise DamageError(f"{name} of a lease is {value!r:.40}")
