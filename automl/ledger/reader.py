"""Reads the logs of a database, and verifies every row that it reads.

The functions with a `connection` run in its transaction, which shows one state of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from automl.core import SweepState
from automl.core.arguments import check_name
from automl.core.garbage import no_collection
from automl.errors import StoreError, UsageError
from search_spaces.plugins import nearest

from . import snapshots
from .database import Database
from .lease import LeaseRow, new_lease, read_leases, shown_state
from .limits import storable
from .records import LogRecord, Row, apply, decoded, unbroken, verified
from .schema import as_dict, check_seal, insert, seal, select, update
from .sqlite_files import Connection
from .store_errors import DamageError, retry, translated

T = TypeVar("T")
_MAX_CHUNK: Final = 1000  # records that are decoded at once
_AFTER: Final = select("records", "WHERE sweep = :sweep AND number > :number ORDER BY number")
_USED: Final = "SELECT sweep FROM leases UNION SELECT max(sweep) FROM records"


class Sweep(NamedTuple):
    """A row of the catalogue; `last` is the number of the sweep's newest record."""

    id: int
    name: str
    created: float
    last: int


@dataclass(frozen=True)
class SweepInfo:
    """A line of `automl list`: `created` in seconds since 1970, `state` as in `Snapshot`."""

    name: str
    state: str
    created: float
    seconds: float
    num_trials: int


@dataclass(frozen=True)
class SweepHead:
    """A sweep without its trials.

    Args:
        version: another one after each commit of its controller and after each command.
        host, pid: of the controller that runs; "" and 0 if none does.
    """

    info: SweepInfo
    version: tuple[float, ...]
    host: str
    pid: int


class Reader:
    """Reads one database; waits for its server if that restarts.

    Every method raises StoreError if what it reads is damaged, and UsageError if there is no sweep
    of the name.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""

        def read(connection: Connection) -> list[SweepHead]:
            leases = read_leases(connection)
            found = sweeps(connection)
            used = {row[0] for row in connection.execute(_USED)} - {None}
            if missing := used - {sweep.id for sweep in found}:
                raise DamageError(f"the row of sweep {min(missing)} is missing")
            return [_sweep_head(sweep, leases.get(sweep.id)) for sweep in found]

        return self._read(read)

    def of_sweep(self, name: str, read: Callable[[Connection, Sweep], T]) -> T:
        """What a function reads of a sweep, in one transaction."""

        def both(connection: Connection) -> list[T]:
            return [read(connection, sweep) for sweep in sweeps(connection, storable(name))]

        if found := self._read(both):
            return found[0]
        names = [head.info.name for head in self.heads()]
        hint = nearest(name, names) if names else "it has no sweeps yet"
        if name.endswith((".yaml", ".yml")):
            hint = f"`automl sweep {name}` runs a configuration, and with --create only creates it"
        raise UsageError(f"there is no sweep named {name!r} in {self._database.name}: {hint}")

    def _read(self, read: Callable[[Connection], T]) -> T:
        def once() -> T:
            with self._database.transaction() as connection:
                return read(connection)

        # a collection would scan all rows again and again
        with translated(self._database.name), no_collection():
            return retry(once)


def sweeps(connection: Connection, name: str | None = None) -> list[Sweep]:
    """The catalogue, or the sweep of one name."""
    query = select("sweeps", "ORDER BY id" if name is None else "WHERE name = :name")
    found = connection.execute(query, {} if name is None else {"name": name})
    return [_sweep(values) for values in found.fetchall()]


def lock_sweep(connection: Connection, sweep: Sweep) -> Sweep:
    """Make other writers of a sweep wait; its row as it is now."""
    return find_sweep(connection, sweep, " FOR UPDATE" if connection.is_server else "")


def find_sweep(connection: Connection, sweep: Sweep, lock: str = "") -> Sweep:
    """The row of a sweep as it is now."""
    query = select("sweeps", f"WHERE id = :sweep{lock}")
    row = connection.execute(query, {"sweep": sweep.id}).fetchone()
    if row is None:
        raise DamageError(f"the row of sweep {sweep.name!r} is missing, or it was deleted")
    return _sweep(row)


def append(connection: Connection, sweep: Sweep, rows: Sequence[Row]) -> None:
    """Add rows to the log of a sweep that is locked."""
    if rows:
        insert(connection, "records", [row._asdict() for row in rows])
        row = seal("sweeps", {**sweep._asdict(), "last": rows[-1].number})
        update(connection, "sweeps", row, "WHERE id = :id")


def rows_after(connection: Connection, sweep: Sweep, number: int) -> Iterator[Row]:
    """The rows of a log after a number, verified.

    Raises:
        DamageError: a row has another sum, or is missing.
    """
    with closing(connection.execute(_AFTER, {"sweep": sweep.id, "number": number})) as found:
        yield from unbroken(map(Row._make, found), sweep.name, number, sweep.last)


def records_after(
    connection: Connection, sweep: Sweep, number: int
) -> Iterator[tuple[list[LogRecord], int]]:
    """The records of a log after a number, in chunks, each with the number of its last record."""
    rows = rows_after(connection, sweep, number)
    while chunk := list(islice(rows, _MAX_CHUNK)):
        yield decoded(chunk), chunk[-1].number


def catch_up(connection: Connection, sweep: Sweep, state: SweepState, number: int) -> int:
    """Apply the records after a number to a state; the number of the last one."""
    for records, newest in records_after(connection, sweep, number):
        apply(state, records)
        number = newest
    return number


def read_state(
    connection: Connection, sweep: Sweep, *, condensed: bool = False
) -> tuple[SweepState, int]:
    """The state of a sweep and the number of its last record.

    Args:
        condensed: finished trials may lack reports that their values do not need. Then only what
            is newer than the cached snapshot is read.
    """
    if condensed and (cached := snapshots.read(connection, sweep.id)):
        state, number = cached
        with suppress(StoreError):  # its reports were kept for other goals
            return state, catch_up(connection, sweep, state, number)
    state = SweepState()
    return state, catch_up(connection, sweep, state, 0)


def sound_records(connection: Connection, sweep: Sweep, condition: str, **values: Any) -> list[Any]:
    """The records of a log that fulfil a condition, in order.

    Each is verified, but not that none is missing.
    """
    query = select("records", f"WHERE sweep = :sweep AND {condition} ORDER BY number")
    found = connection.execute(query, {"sweep": sweep.id, **values}).fetchall()
    rows = map(Row._make, found)
    return decoded(list(verified(rows, sweep.name)))


def _sweep(values: Any) -> Sweep:
    row = as_dict("sweeps", values)
    check_seal("sweeps", row, f"the name of sweep {row['name']!r:.80}")
    check_name(row["name"])  # it names a folder
    return Sweep(row["id"], row["name"], float(row["created"]), row["last"])


def _sweep_head(sweep: Sweep, lease: LeaseRow | None) -> SweepHead:
    lease = lease or new_lease(sweep.id) | {"now": 0.0}
    state = shown_state(lease, lease["closed"])
    info = SweepInfo(sweep.name, state, sweep.created, lease["seconds"], lease["num_trials"])
    version = (sweep.id, sweep.created, sweep.last, lease["fence"], lease["commits"], lease["held"])
    running = state == "running"
    return SweepHead(
        info, version, lease["host"] if running else "", lease["pid"] if running else 0
    )
