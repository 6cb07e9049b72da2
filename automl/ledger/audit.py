"""Reads the rows of a sweep and verifies them: each row's sum, the totals, the chain of events.

The functions run in the transaction of their connection, which must show one state of the database.
They append what is damaged to `damage`, one sentence each, and return every row as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from . import sums
from .newest import Acknowledged
from .rows import COMMAND, ReportRow, Row
from .schema import EVENTS, HOLDERS, META, REPORTS, SWEEPS, TRIALS

SCHEMA_VERSION = "schema_version"  # keys in `meta`
SWEEPS_TOTAL = "sweeps_total"
Damage = list[str]
T = TypeVar("T")


def read(connection: sa.Connection, query: sa.Select[Any]) -> list[Row]:
    """The rows of a query as dictionaries."""
    return [dict(row) for row in connection.execute(query).mappings().all()]


def whole(
    connection: sa.Connection, acknowledged: Mapping[int, Acknowledged] | None = None
) -> Damage:
    """What is damaged in a database, after every row was read.

    Args:
        acknowledged: by id of sweep, what must be in it.
    """
    damage: Damage = []
    must_have = {} if acknowledged is None else acknowledged
    known = sweeps(connection, damage)
    for row in known:
        found: Damage = []
        holder_row = holder(connection, row, found)
        check_newest(row, holder_row, must_have, found)
        trials(connection, row, holder_row, found, len)
        damage += found
        found = []
        events(connection, row, holder_row, found)
        damage += found
    ids = [row["id"] for row in known]
    for table in (HOLDERS, TRIALS, REPORTS, EVENTS):
        query = sa.select(table.c.sweep).where(table.c.sweep.not_in(ids)).limit(1)
        if connection.scalars(query).all():
            damage.append(f"rows of {table.name!r} belong to a sweep that is missing")
    return list(dict.fromkeys(damage))


def meta(connection: sa.Connection, damage: Damage) -> dict[str, str]:
    """The rows of `meta` by key."""
    found = read(connection, sa.select(META))
    for row in found:
        _check(sums.META_ROW, row, f"the record {row['key']!r} of the ledger", damage)
    if not damage and {row["key"] for row in found} != {SCHEMA_VERSION, SWEEPS_TOTAL}:
        damage.append("a record of the ledger is missing")
    return {row["key"]: row["value"] for row in found}


def sweeps(connection: sa.Connection, damage: Damage) -> list[Row]:
    """Every sweep, the newest one last."""
    known = meta(connection, damage)
    found = read(connection, sa.select(SWEEPS).order_by(SWEEPS.c.id))
    for row in found:
        sweep(row, damage)
    total = str(sums.added(0, *(row["sum"] for row in found)))
    if not damage and known.get(SWEEPS_TOTAL) != total:
        damage.append("a sweep is missing, or there is one too many")
    return found


def sweep(row: Mapping[str, Any], damage: Damage) -> None:
    """Verify a row of `sweeps`."""
    _check(sums.SWEEP, row, f"the specification of sweep {row['name']!r}", damage)
    _check(sums.PROGRESS, row, f"the state of sweep {row['name']!r}", damage)


def holders(
    connection: sa.Connection, sweeps: Iterable[Mapping[str, Any]], damage: Damage
) -> dict[int, Row]:
    """By id of some sweeps: the row of the controller that holds it, or held it last."""
    named = {sweep["id"]: _named(sweep) for sweep in sweeps}
    found = read(connection, sa.select(HOLDERS).where(HOLDERS.c.sweep.in_(named)))
    for row in found:
        _check(sums.HOLDER, row, f"the controller's record of {named[row['sweep']]}", damage)
    return {row["sweep"]: row for row in found}


def holder(connection: sa.Connection, sweep: Mapping[str, Any], damage: Damage) -> Row | None:
    """The row of the controller that holds a sweep, or held it last."""
    return holders(connection, [sweep], damage).get(sweep["id"])


def check_newest(
    sweep: Row, holder: Row | None, acknowledged: Mapping[int, Acknowledged], damage: Damage
) -> None:
    """Verify that a sweep has everything that was acknowledged."""
    known = acknowledged.get(sweep["id"])
    if not damage and known and (missing := known.missing(sweep, holder)):
        damage.append(missing)


def trials(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    holder: Mapping[str, Any] | None,
    damage: Damage,
    use: Callable[[list[ReportRow]], T],
) -> tuple[list[Row], dict[int, T]]:
    """Every trial of a sweep by number, and what `use` makes of its sound reports, by trial.

    The reports of one trial at a time are in memory: there may be a million of them.
    """
    of_trials = sa.select(TRIALS).where(TRIALS.c.sweep == sweep["id"]).order_by(TRIALS.c.number)
    found = {row["number"]: row for row in read(connection, of_trials)}
    for row in found.values():
        _check(sums.TRIAL, row, f"trial {row['number']} of {_named(sweep)}", damage)
    expected = (holder["num_trials"], holder["trials_total"]) if holder else (0, 0)
    _check_total(expected, found.values(), f"of the trials of {_named(sweep)}", damage)
    used = {}
    missing = {number for number, row in found.items() if row["num_reports"]}
    for number, reports in groupby(_reports(connection, sweep), key=attrgetter("trial")):
        missing.discard(number)
        whose = f"of trial {number} of {_named(sweep)}"
        if number not in found:
            damage.append(f"there are reports {whose}, which is missing")
        elif _check_reports(found[number], rows := list(reports), whose, damage):
            used[number] = use(rows)
    damage += [
        f"the reports of trial {number} of {_named(sweep)} are missing" for number in missing
    ]
    return list(found.values()), used


def events(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    holder: Mapping[str, Any] | None,
    damage: Damage,
) -> list[Row]:
    """Every event and command of a sweep, in order."""
    query = sa.select(EVENTS).where(EVENTS.c.sweep == sweep["id"]).order_by(EVENTS.c.id)
    found = read(connection, query)
    _check_commands([row for row in found if row["kind"] == COMMAND], sweep, damage)
    chained = [row for row in found if row["kind"] != COMMAND]
    last = 0
    for row in chained:
        _check(sums.EVENT, row, f"event {row['id']} of {_named(sweep)}", damage)
        if not damage and row["previous"] != last:
            damage.append(f"an event before event {row['id']} of {_named(sweep)} is missing")
        last = row["sum"]
    expected = (holder["num_events"], holder["last_event"]) if holder else (0, 0)
    if not damage and (len(chained), last) != expected:
        damage.append(f"the last events of {_named(sweep)} are missing")
    return found


def commands(connection: sa.Connection, sweep: Mapping[str, Any], damage: Damage) -> list[Row]:
    """Every command to a sweep, in order."""
    mine = (EVENTS.c.sweep == sweep["id"]) & (EVENTS.c.kind == COMMAND)
    found = read(connection, sa.select(EVENTS).where(mine).order_by(EVENTS.c.id))
    _check_commands(found, sweep, damage)
    return found


def _check_commands(found: list[Row], sweep: Mapping[str, Any], damage: Damage) -> None:
    for row in found:
        _check(sums.COMMAND, row, f"command {row['id']} of {_named(sweep)}", damage)
    expected = (sweep["num_commands"], sweep["commands_total"])
    _check_total(expected, found, f"of the commands of {_named(sweep)}", damage)


def _reports(connection: sa.Connection, sweep: Mapping[str, Any]) -> Iterator[ReportRow]:
    key = (REPORTS.c.trial, REPORTS.c.attempt, REPORTS.c.sequence)
    query = sa.select(REPORTS).where(REPORTS.c.sweep == sweep["id"]).order_by(*key)
    found = connection.execute(query).partitions(1000)
    return map(ReportRow._make, chain.from_iterable(found))


def _check_reports(trial: Row, found: list[ReportRow], whose: str, damage: Damage) -> bool:
    """Verify the reports of a trial; True if all of them are there and sound."""
    bad = [row for row in found if sums.REPORT.of(row[:-1]) != row.sum]
    damage += [f"report {row.attempt}.{row.sequence} {whose} has another checksum" for row in bad]
    total = sums.added(0, *(row.sum for row in found))
    if not bad and (len(found), total) != (trial["num_reports"], trial["reports_total"]):
        damage.append(f"reports {whose} are missing: {trial['num_reports']} were recorded")
        return False
    return not bad


def _check(checksum: sums.Checksum, row: Mapping[str, Any], what: str, damage: Damage) -> None:
    if not checksum.holds(row):
        damage.append(f"{what} has another checksum")


def _check_total(
    expected: tuple[int, int], found: Iterable[Row], whose: str, damage: Damage
) -> None:
    kept = [row["sum"] for row in found]
    if not damage and (len(kept), sums.added(0, *kept)) != expected:
        damage.append(f"records {whose} are missing or old: {expected[0]} were recorded")


def _named(sweep: Mapping[str, Any]) -> str:
    return f"sweep {sweep['name']!r}"
