"""Computes every sum of a database anew from the rows that are there.

For rows that are known to be right: those that a migration has changed or a repair has kept.
"""

from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from . import sums
from .audit import SWEEPS_TOTAL, read
from .rows import COMMAND, Row
from .schema import EVENTS, HOLDERS, META, REPORTS, SWEEPS, TRIALS


def seal_all(connection: sa.Connection) -> None:
    """Store the sum of every row, the totals and the chains of events."""
    kept = [_seal_sweep(connection, row) for row in read(connection, sa.select(SWEEPS))]
    update(connection, SWEEPS, kept)
    connection.execute(META.delete().where(META.c.key == SWEEPS_TOTAL))
    total = sums.added(0, *(row["sum"] for row in kept))
    connection.execute(META.insert(), {"key": SWEEPS_TOTAL, "value": str(total)})
    meta = [sums.META_ROW.seal(row) for row in read(connection, sa.select(META))]
    update(connection, META, meta)


def update(connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
    """Replace rows of a table; each is found by its primary key."""
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    where = sa.and_(*(table.c[key] == sa.bindparam(f"_{key}") for key in keys))
    values: dict[str, Any] = {name: sa.bindparam(name) for name in rows[0] if name not in keys}
    named = [{f"_{name}" if name in keys else name: row[name] for name in row} for row in rows]
    connection.execute(table.update().where(where).values(values), named)


def _seal_sweep(connection: sa.Connection, sweep: Row) -> Row:
    reports = _read_all(connection, REPORTS, sweep)
    sealed = [sums.REPORT.seal(row) for row in reports]
    update(connection, REPORTS, sealed)
    of_trial = defaultdict(list)
    for row in sealed:
        of_trial[row["trial"]].append(row["sum"])
    trials = [
        sums.TRIAL.seal(
            row
            | {
                "num_reports": len(of_trial[row["number"]]),
                "reports_total": sums.added(0, *of_trial[row["number"]]),
            }
        )
        for row in _read_all(connection, TRIALS, sweep)
    ]
    update(connection, TRIALS, trials)
    events, commands = _seal_events(_read_all(connection, EVENTS, sweep))
    update(connection, EVENTS, events + commands)
    totals = {
        "num_trials": len(trials),
        "trials_total": sums.added(0, *(row["sum"] for row in trials)),
        "num_events": len(events),
        "last_event": events[-1]["sum"] if events else 0,
    }
    holders = _read_all(connection, HOLDERS, sweep)
    update(connection, HOLDERS, [sums.HOLDER.seal(row | totals) for row in holders])
    counts = {
        "num_commands": len(commands),
        "commands_total": sums.added(0, *(row["sum"] for row in commands)),
    }
    return sums.PROGRESS.seal(sums.SWEEP.seal(sweep | counts))


def _seal_events(found: list[Row]) -> tuple[list[Row], list[Row]]:
    """The events and the commands among some rows."""
    events, last = [], 0
    for row in found:
        if row["kind"] != COMMAND:
            events.append(sums.EVENT.seal(row | {"previous": last}))
            last = events[-1]["sum"]
    return events, [sums.COMMAND.seal(row) for row in found if row["kind"] == COMMAND]


def _read_all(connection: sa.Connection, table: sa.Table, sweep: Row) -> list[Row]:
    query = sa.select(table).where(table.c.sweep == sweep["id"])
    return read(connection, query.order_by(*table.primary_key))
