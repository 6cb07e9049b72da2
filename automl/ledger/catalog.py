"""Adds, changes and deletes sweeps and commands, with their sums and totals.

The functions run in the transaction of their connection. Each locks the row whose total it changes
before anything else, so two processes wait for each other.
"""

from typing import Any, Final

import sqlalchemy as sa

from . import sums
from .audit import SWEEPS_TOTAL
from .progress import read_progress, write_progress
from .rows import Row
from .schema import EVENTS, HOLDERS, META, NEW_COMMANDS, REPORTS, SWEEPS, TRIALS
from .store_errors import damaged

_AT_FIRST: Final = {
    "state": "interrupted",
    "seconds": 0.0,
    "stop_requested": 0,
    "num_commands": 0,
    "commands_total": 0,
}


def add_sweep(connection: sa.Connection, store: str, row: Row) -> None:
    """Add a sweep: its name, spec, environment and time of creation.

    Raises:
        IntegrityError: there is one of that name.
    """
    total = _locked_total(connection, store)
    added: Any = connection.execute(SWEEPS.insert(), row | _AT_FIRST).inserted_primary_key
    sealed = sums.PROGRESS.seal(sums.SWEEP.seal(row | _AT_FIRST | {"id": added[0]}))
    connection.execute(SWEEPS.update().where(SWEEPS.c.id == added[0]).values(sealed))
    _store_total(connection, sums.added(total, sealed["sum"]))


def replace_spec(connection: sa.Connection, store: str, name: str, spec: str) -> None:
    """Store another spec for a sweep."""
    total = _locked_total(connection, store)
    query = sa.select(SWEEPS).where(SWEEPS.c.name == name).with_for_update(key_share=True)
    before: Row = dict(connection.execute(query).mappings().one())
    after = sums.SWEEP.seal({key: before[key] for key in sums.SWEEP.columns} | {"spec": spec})
    connection.execute(SWEEPS.update().where(SWEEPS.c.id == before["id"]).values(after))
    _store_total(connection, sums.added(total, after["sum"], -before["sum"]))


def delete_sweep(connection: sa.Connection, store: str, sweep: int) -> None:
    """Delete every row of a sweep."""
    total = _locked_total(connection, store)
    found = connection.scalar(sa.select(SWEEPS.c.sum).where(SWEEPS.c.id == sweep)) or 0
    for table in (REPORTS, EVENTS, TRIALS, HOLDERS):
        connection.execute(table.delete().where(table.c.sweep == sweep))
    connection.execute(SWEEPS.delete().where(SWEEPS.c.id == sweep))
    _store_total(connection, sums.added(total, -found))


def add_commands(
    connection: sa.Connection, store: str, sweep: int, found: list[Row], flags: int = 0
) -> tuple[Row, list[int]]:
    """Add commands to a sweep, and the flag that tells its controller of them.

    Args:
        flags: further bits of `stop_requested` to set.

    Returns:
        The columns of the sweep's row that change while it runs, and the commands' identities.
    """
    row = read_progress(connection, store, sweep)
    identities = []
    for command in found:
        unsealed = command | {"previous": 0}
        added: Any = connection.execute(EVENTS.insert(), unsealed).inserted_primary_key
        sealed = sums.COMMAND.seal(unsealed | {"id": added[0]})
        connection.execute(EVENTS.update().where(EVENTS.c.id == added[0]).values(sealed))
        identities.append(added[0])
        row["num_commands"] += 1
        row["commands_total"] = sums.added(row["commands_total"], sealed["sum"])
    row["stop_requested"] |= NEW_COMMANDS | flags
    write_progress(connection, row)
    return row, identities


def _locked_total(connection: sa.Connection, store: str) -> int:
    query = sa.select(META).where(META.c.key == SWEEPS_TOTAL).with_for_update()
    found = connection.execute(query).mappings().first()
    if found is None or not sums.META_ROW.holds(dict(found)):
        raise damaged(store, f"the record {SWEEPS_TOTAL!r} of the ledger has another checksum")
    return int(found["value"])


def _store_total(connection: sa.Connection, total: int) -> None:
    row = sums.META_ROW.seal({"key": SWEEPS_TOTAL, "value": str(total)})
    connection.execute(META.update().where(META.c.key == SWEEPS_TOTAL).values(row))
