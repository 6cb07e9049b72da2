"""Computes every sum of a database anew from the rows that are there.

For rows that are known to be right: those that a migration has changed or a repair has kept.
"""

from collections import defaultdict

import sqlalchemy as sa

from . import sums
from .audit import SWEEPS_TOTAL, read
from .rows import COMMAND, Row
from .schema import EVENTS, HOLDERS, META, REPORTS, SWEEPS, TRIALS
from .statements import keyed, replacing


def seal_all(connection: sa.Connection) -> None:
    """Store the sum of every row, the totals and the chains of events."""
    kept = [_seal_sweep(connection, row) for row in read(connection, sa.select(SWEEPS))]
    _replace(connection, SWEEPS, kept)
    connection.execute(META.delete().where(META.c.key == SWEEPS_TOTAL))
    total = sums.added(0, *(row["sum"] for row in kept))
    connection.execute(META.insert(), {"key": SWEEPS_TOTAL, "value": str(total)})
    meta = [sums.META_ROW.seal(row) for row in read(connection, sa.select(META))]
    _replace(connection, META, meta)


def _replace(connection: sa.Connection, table: sa.Table, rows: list[Row]) -> None:
    if rows:
        parameters = [keyed(table, row) for row in rows]
        connection.execute(replacing(table, rows[0]), parameters)


def _seal_sweep(connection: sa.Connection, sweep: Row) -> Row:
    reports = _read_all(connection, REPORTS, sweep)
    sealed = [sums.REPORT.seal(row) for row in reports]
    _replace(connection, REPORTS, sealed)
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
    _replace(connection, TRIALS, trials)
    events, commands = _seal_events(_read_all(connection, EVENTS, sweep))
    _replace(connection, EVENTS, events + commands)
    totals = {
        "num_trials": len(trials),
        "trials_total": sums.added(0, *(row["sum"] for row in trials)),
        "num_events": len(events),
        "last_event": events[-1]["sum"] if events else 0,
    }
    holders = _read_all(connection, HOLDERS, sweep)
    _replace(connection, HOLDERS, [sums.HOLDER.seal(row | totals) for row in holders])
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
