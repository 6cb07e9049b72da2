"""Reads the logs of a database, and verifies every row that it reads.

The functions with a `connection` run in its transaction, which shows one state of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from automl.core import SweepState
from automl.core.garbage import no_collection
from automl.core.names import check_name
from automl.errors import StoreError, UsageError
from search_spaces.plugins import nearest

from . import snapshots
from .database import Database
from .head import Head, check_place
from .lease import LeaseRow, new_lease, read_leases, shown_state
from .limits import storable
from .records import (
    BEGINNING,
    LogRecord,
    Place,
    Row,
    apply,
    check_seal,
    decoded,
    is_sound,
    verified,
)
from .schema import as_dict, select
from .sqlite_files import Connection
from .store_errors import DamageError, retry, translated

T = TypeVar("T")
_MAX_CHUNK: Final = 1000  # records that are decoded at once
_AFTER: Final = select("records", "WHERE sweep = :sweep AND number > :number ORDER BY number")
_LAST: Final = "SELECT number, sum FROM records WHERE sweep = :sweep ORDER BY number DESC LIMIT 1"


class Sweep(NamedTuple):
    """A row of the catalogue."""

    id: int
    name: str
    created: float


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
    version: tuple[int, ...]
    host: str
    pid: int


class Reader:
    """Reads one database; waits for its server if that restarts.

    Every method raises StoreError if what it reads is damaged, and UsageError if there is no sweep
    of the name.

    Args:
        database: to read; head: of a SQLite file, known before the file itself is read.
    """

    def __init__(self, database: Database, head: Head) -> None:
        self._database = database
        self._head = head

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        known = self._head.read()

        def read(connection: Connection) -> list[SweepHead]:
            leases = read_leases(connection)
            found = list(sweeps(connection))
            if missing := known.keys() - {sweep.id for sweep in found}:
                raise DamageError(f"sweep {min(missing)} is missing")
            heads = []
            for sweep in found:
                last = last_place(connection, sweep)
                check_place(known.get(sweep.id), last, sweep.name)
                heads.append(_sweep_head(sweep, last, leases.get(sweep.id)))
            return heads

        return self._read(read)

    def of_sweep(self, name: str, read: Callable[[Connection, Sweep], T]) -> T:
        """What a function reads of a sweep, in one transaction."""
        known = self._head.read()

        def both(connection: Connection) -> list[T]:
            results = []
            for sweep in sweeps(connection, storable(name)):
                check_place(known.get(sweep.id), last_place(connection, sweep), name)
                results.append(read(connection, sweep))
            return results

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


def sweeps(connection: Connection, name: str | None = None) -> Iterator[Sweep]:
    """The catalogue, or the sweep of one name."""
    query = select("sweeps", "ORDER BY id" if name is None else "WHERE name = :name")
    last = None
    for values in connection.execute(query, {} if name is None else {"name": name}):
        row = as_dict("sweeps", values)
        if last is not None and row["id"] <= last:  # pages that refer to each other are endless
            raise DamageError("the catalogue of sweeps is out of order")
        last = row["id"]
        check_seal("sweep", row, f"the name of sweep {row['name']!r:.80}")
        check_name(row["name"])  # it names a folder
        yield Sweep(row["id"], row["name"], float(row["created"]))


def lock_sweep(connection: Connection, sweep: Sweep) -> None:
    """Make other writers of a sweep wait; its row may be gone."""
    query = "SELECT id FROM sweeps WHERE id = :sweep"
    query += " FOR UPDATE" if connection.is_server else ""
    if connection.execute(query, {"sweep": sweep.id}).fetchone() is None:
        raise DamageError(f"the row of sweep {sweep.name!r} is missing, or it was deleted")


def last_place(connection: Connection, sweep: Sweep) -> Place:
    """The newest record of a log, by the database's order; its row is not verified."""
    row = connection.execute(_LAST, {"sweep": sweep.id}).fetchone()
    return Place(*row) if row else BEGINNING


def rows_after(connection: Connection, sweep: Sweep, place: Place) -> Iterator[Row]:
    """The rows of a log after a place, verified.

    Raises:
        DamageError: a row has another sum, or is missing; a damaged page may hide all after it.
    """
    found = connection.execute(_AFTER, {"sweep": sweep.id, "number": place.number})
    row = None
    for row in verified(map(Row._make, found), place, sweep.name):
        yield row
    if last_place(connection, sweep) != (row.place if row else place):
        raise DamageError(f"the last records of sweep {sweep.name!r} are missing")


def records_after(
    connection: Connection, sweep: Sweep, place: Place
) -> Iterator[tuple[list[LogRecord], Place]]:
    """The records of a log after a place, in chunks, each with the place of its last record."""
    rows = rows_after(connection, sweep, place)
    while chunk := list(islice(rows, _MAX_CHUNK)):
        yield decoded(chunk), chunk[-1].place


def catch_up(connection: Connection, sweep: Sweep, state: SweepState, place: Place) -> Place:
    """Apply the records after a place to a state; the place of the last one."""
    for records, newest in records_after(connection, sweep, place):
        apply(state, records)
        place = newest
    return place


def read_state(
    connection: Connection, sweep: Sweep, *, condensed: bool = False
) -> tuple[SweepState, Place]:
    """The state of a sweep and the place of its last record.

    Args:
        condensed: finished trials may lack reports that their values do not need. Then only what
            is newer than the cached snapshot is read.
    """
    if condensed and (cached := snapshots.read(connection, sweep.id)):
        state, place = cached
        with suppress(StoreError):  # its reports were kept for other goals
            return state, catch_up(connection, sweep, state, place)
    state = SweepState()
    return state, catch_up(connection, sweep, state, BEGINNING)


def sound_records(connection: Connection, sweep: Sweep, condition: str, **values: Any) -> list[Any]:
    """The records of a log that fulfil a condition, in order.

    Each is verified, but not that none is missing.
    """
    query = select("records", f"WHERE sweep = :sweep AND {condition}")
    rows = list(map(Row._make, connection.execute(query, {"sweep": sweep.id, **values})))
    for row in rows:
        if not is_sound(row):
            raise DamageError(f"record {row.number} of sweep {sweep.name!r} has another checksum")
    return decoded(sorted(rows, key=lambda row: row.number))


def _sweep_head(sweep: Sweep, last: Place, lease: LeaseRow | None) -> SweepHead:
    lease = lease or new_lease(sweep.id) | {"now": 0.0}
    state = shown_state(lease, lease["closed"])
    info = SweepInfo(sweep.name, state, sweep.created, lease["seconds"], lease["num_trials"])
    version = (sweep.id, *last, lease["fence"], lease["commits"], lease["held"])
    if state != "running":
        return SweepHead(info, version, "", 0)
    return SweepHead(info, version, lease["host"], lease["pid"])
