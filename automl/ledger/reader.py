"""Reads the logs of a database, and verifies every row that it reads.

The functions with a `connection` run in its transaction, which shows one state of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy as sa

from automl.core import SweepState
from automl.core.garbage import no_collection
from automl.core.names import check_name
from automl.errors import StoreError, UsageError
from search_spaces.plugins import nearest

from . import snapshots
from .head import Head, check_place
from .lease import LeaseRow, read_leases, shown_state
from .limits import storable
from .protocol import LogRecord
from .records import BEGINNING, Place, Row, check_seal, decoded, is_sound, verify
from .schema import RECORDS, SWEEPS
from .store_errors import DamageError, read_with_retry, translate_decoding_errors

T = TypeVar("T")
_CHUNK: Final = 1000  # records that are decoded at once
_AFTER: Final = (
    sa.select(RECORDS)
    .where(RECORDS.c.sweep == sa.bindparam("_sweep"), RECORDS.c.number > sa.bindparam("_number"))
    .order_by(RECORDS.c.number)
)  # built once: to build it takes longer than to run it
_LAST: Final = (
    sa.select(RECORDS.c.number, RECORDS.c.sum)
    .where(RECORDS.c.sweep == sa.bindparam("_sweep"))
    .order_by(RECORDS.c.number.desc())
    .limit(1)
)


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
        engine: of the database; name: of the store, for messages.
        head: of a SQLite file; None for a server.
    """

    def __init__(self, engine: sa.Engine, name: str, head: Head | None = None) -> None:
        # A method makes several queries, which must see one state of the database.
        is_server = engine.dialect.name == "postgresql"
        level: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if is_server else {}
        self._engine = engine.execution_options(**level)
        self._name = name
        self._head = head

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        known = self._head.read() if self._head else {}

        def read(connection: sa.Connection) -> list[SweepHead]:
            found = sweeps(connection)
            if missing := known.keys() - {one.id for one in found}:
                raise DamageError(f"sweep {min(missing)} is missing")
            leases = read_leases(connection)
            heads = []
            for sweep in found:
                last = last_place(connection, sweep.id)
                check_place(known.get(sweep.id), last, sweep.name)
                heads.append(_sweep_head(sweep, last, leases.get(sweep.id)))
            return heads

        return self.verified(read)

    def state(self, name: str) -> SweepState:
        """The whole state of a sweep, with every report."""
        return self.of_sweep(name, lambda connection, sweep: read_state(connection, sweep)[0])

    def records(self, name: str, after: int = 0) -> list[LogRecord]:
        """The records of a sweep after the one of this number, in order."""

        def read(connection: sa.Connection, sweep: Sweep) -> list[LogRecord]:
            return [
                record
                for rows in chunks(connection, sweep, BEGINNING)
                for record in decoded([row for row in rows if row.number > after])
            ]

        return self.of_sweep(name, read)

    def lease(self, name: str) -> LeaseRow | None:
        """Who holds a sweep or held it last; None if nobody ever has."""
        return self.of_sweep(name, read_lease)

    def find(self, name: str) -> Sweep:
        """The sweep of a name."""
        return self.of_sweep(name, lambda connection, sweep: sweep)

    def of_sweep(self, name: str, read: Callable[[sa.Connection, Sweep], T]) -> T:
        """What a function reads of a sweep, in a transaction."""
        known = self._head.read() if self._head else {}

        def both(connection: sa.Connection) -> list[T]:
            results = []
            for sweep in sweeps(connection, storable(name)):
                check_place(known.get(sweep.id), last_place(connection, sweep.id), name)
                results.append(read(connection, sweep))
            return results

        if found := self.verified(both):
            return found[0]
        names = [head.info.name for head in self.heads()]
        hint = nearest(name, names) if names else "it has no sweeps yet"
        raise UsageError(f"there is no sweep named {name!r} in {self._name}: {hint}")

    def verified(self, read: Callable[[sa.Connection], T]) -> T:
        """What a function reads in a transaction; an error of what it reads is a StoreError."""
        # a collection would scan all rows again and again
        with translate_decoding_errors(self._name), no_collection():
            return read_with_retry(self._engine, self._name, read)


def sweeps(connection: sa.Connection, name: str | None = None) -> list[Sweep]:
    """The catalogue, or the sweep of one name."""
    query = sa.select(SWEEPS).order_by(SWEEPS.c.id)
    query = query if name is None else query.where(SWEEPS.c.name == name)
    found: list[Sweep] = []
    for row in connection.execute(query.execution_options(yield_per=100)):
        if found and row.id <= found[-1].id:  # pages that refer to each other may be endless
            raise DamageError("the catalogue of sweeps is out of order")
        sealed = row._asdict()
        check_seal("sweep", sealed, f"the name of sweep {row.name!r:.80}")
        check_name(row.name)  # it names a folder
        found.append(Sweep(row.id, row.name, float(row.created)))
    return found


def last_place(connection: sa.Connection, sweep: int) -> Place:
    """The newest record of a log, by the database's order; its row is not verified."""
    row = connection.execute(_LAST, {"_sweep": sweep}).first()
    return Place(row.number, row.sum) if row else BEGINNING


def rows_after(connection: sa.Connection, sweep: int, number: int) -> Iterator[list[Row]]:
    """The rows of a log after a number, in chunks. They are not verified."""
    found = connection.execute(_AFTER, {"_sweep": sweep, "_number": number})
    for part in found.partitions(_CHUNK):
        yield list(map(Row._make, part))


def chunks(connection: sa.Connection, sweep: Sweep, place: Place) -> Iterator[list[Row]]:
    """The rows of a log after a place, verified."""
    for rows in rows_after(connection, sweep.id, place.number):
        place = verify(rows, place, sweep.name)
        yield rows


def read_state(
    connection: sa.Connection, sweep: Sweep, *, condensed: bool = False
) -> tuple[SweepState, Place]:
    """The state of a sweep and the place of its last record.

    Args:
        condensed: finished trials may lack reports that their values do not need. Then only what
            is newer than the cached snapshot is read.
    """
    cached, place = snapshots.read(connection, sweep.id) if condensed else (None, BEGINNING)
    state = cached or SweepState()
    try:
        for rows in chunks(connection, sweep, place):
            advance(state, decoded(rows))
            place = Place(rows[-1].number, rows[-1].sum)
    except StoreError:
        if cached is None:
            raise
        return read_state(connection, sweep)  # its reports were kept for other goals
    return state, place


def advance(state: SweepState, records: list[LogRecord]) -> set[int]:
    """Apply records to a state; the numbers of the trials that changed."""
    changed = set()
    for record in records:
        trial = state.apply(record.event, record.number)
        if trial is not None:
            changed.add(trial.number)
    return changed


def read_lease(connection: sa.Connection, sweep: Sweep) -> LeaseRow | None:
    """Who holds a sweep or held it last; None if nobody ever has."""
    return read_leases(connection, {sweep.id: sweep.name}).get(sweep.id)


def sound_rows(connection: sa.Connection, sweep: Sweep, query: sa.Select[Any]) -> list[Row]:
    """Some rows of a log. Each is verified, but not that none is missing."""
    rows = list(map(Row._make, connection.execute(query)))
    for row in rows:
        if not is_sound(row):
            raise DamageError(f"record {row.number} of sweep {sweep.name!r} has another checksum")
    return rows


def _sweep_head(sweep: Sweep, last: Place, lease: LeaseRow | None) -> SweepHead:
    closed, seconds, num_trials = "interrupted", 0.0, 0
    if lease:
        closed, seconds, num_trials = lease["closed"], lease["seconds"], lease["num_trials"]
    state = shown_state(lease, closed)
    info = SweepInfo(sweep.name, state, sweep.created, seconds, num_trials)
    held = (lease["fence"], lease["commits"], lease["held"]) if lease else ()
    version = (sweep.id, *last, *held)
    if lease and state == "running":
        return SweepHead(info, version, lease["host"], lease["pid"])
    return SweepHead(info, version, "", 0)
