"""The lease on a sweep: the row of `leases` that says which process holds it, and until when.

The functions with a `connection` run in its transaction.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from automl.core.arguments import compact_json
from automl.errors import StoreError

from .schema import as_dict, check_seal, insert, seal, select, update
from .sqlite_files import Connection
from .store_errors import HeldError

STALE_SECONDS: Final = 60.0
FUTURE_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 5.0
LeaseRow = dict[str, Any]  # of `leases`, with `now`, the time on the clock of its `heartbeat`
_MINE: Final = "WHERE sweep = :sweep AND fence = :fence AND held = 1"


def process_started(pid: int) -> float | None:
    """Start of a process, independent of clock changes; None if there is no such process."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        pass
    import psutil

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


def read_leases(connection: Connection) -> dict[int, LeaseRow]:
    """The lease of each sweep that somebody has held, by its id.

    Raises:
        DamageError: one has another checksum.
    """
    now = connection.clock()
    rows = connection.execute(select("leases"))
    return {row[0]: _checked(row, now) for row in rows}


def read_lease(connection: Connection, sweep: int) -> LeaseRow | None:
    """Who holds a sweep or held it last; None if nobody ever has."""
    query = select("leases", "WHERE sweep = :sweep")
    row = connection.execute(query, {"sweep": sweep}).fetchone()
    return _checked(row, connection.clock()) if row else None


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
    return seal("leases", row)


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
        connection: Connection,
        store: str,
        sweep: int,
        last: LeaseRow | None,
        status: Mapping[str, Any],
    ) -> Lease:
        """Make this process the holder, under a fencing number that is larger than any before.

        Args:
            last: the present lease; status: of the controller until its first commit.
        """
        row = (last or new_lease(sweep)) | {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_started": process_started(os.getpid()),
            "heartbeat": connection.clock(),
            "held": 1,
            "commits": 0,
            "status": compact_json(status),
        }
        row["fence"] += 1
        row = seal("leases", row)
        connection.execute("DELETE FROM leases WHERE sweep = :sweep", {"sweep": sweep})
        insert(connection, "leases", [row])
        return cls(store, row)

    @property
    def heartbeat(self) -> float:
        """When it was taken or renewed last, on the clock of the store."""
        return float(self._row["heartbeat"])

    def renew(self, connection: Connection, now: float, **values: Any) -> None:
        """Set the heartbeat, count one commit, and change other columns.

        Args:
            now: on the clock of the store.

        Raises:
            StoreError: another process holds the sweep.
        """
        changed = {"heartbeat": now, "commits": self._row["commits"] + 1, **values}
        row = seal("leases", self._row | changed)
        if not update(connection, "leases", row, _MINE):
            raise StoreError(
                f"{self._store}: another controller has taken the sweep over; this one ends"
            )
        self._row = row

    def give_up(self, connection: Connection) -> None:
        """Let another process take the sweep."""
        self.renew(connection, connection.clock(), held=0)


def refusal(sweep: str, lease: LeaseRow | None) -> HeldError:
    """The error for who comes second; `lease` is that of who came first, if it is known."""
    who = f"process {lease['pid']} on {lease['host']}" if lease else "another process"
    what = f"wait for it, or stop it with `automl stop {sweep}`"
    if lease and (lease["host"], lease["pid"]) == (socket.gethostname(), os.getpid()):
        who += ", this one"
        what = "call close() on the earlier Optimizer, or make it in a `with` block"
    return HeldError(f"sweep {sweep!r} is held by {who}: {what}")


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


def _checked(values: Iterable[Any], now: float) -> LeaseRow:
    row = as_dict("leases", values)
    check_seal("leases", row, f"the lease of sweep {row['sweep']!r:.40}")
    return {**row, "now": now}
