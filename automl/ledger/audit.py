"""Reads the rows of a sweep and verifies them: each row's sum, the totals, the chain of events.

The functions run in the transaction of their connection, which must show one state of the database.
They append what is damaged to `damage`, one sentence each, and return every row as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from . import sums
from .newest import Acknowledged
from .rows import ANSWER, COMMAND, ReportRow, Row, command_of
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
        trial(row, sweep, damage)
    expected = (holder["num_trials"], holder["trials_total"]) if holder else (0, 0)
    _check_total(expected, found.values(), f"of the trials of {_named(sweep)}", damage)
    mine = REPORTS.c.sweep == sweep["id"]
    return list(found.values()), _used(connection, sweep, found, mine, damage, use)


def one_trial(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    number: int,
    damage: Damage,
    use: Callable[[list[ReportRow]], T],
) -> tuple[list[Row], dict[int, T]]:
    """The same of one trial; it is not verified whether all trials are there."""
    mine = (TRIALS.c.sweep == sweep["id"]) & (TRIALS.c.number == number)
    found = {row["number"]: row for row in read(connection, sa.select(TRIALS).where(mine))}
    for row in found.values():
        trial(row, sweep, damage)
    reported = (REPORTS.c.sweep == sweep["id"]) & (REPORTS.c.trial == number)
    return list(found.values()), _used(connection, sweep, found, reported, damage, use)


def _used(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    found: Mapping[int, Row],
    which: sa.ColumnElement[bool],
    damage: Damage,
    use: Callable[[list[ReportRow]], T],
) -> dict[int, T]:
    """What `use` makes of the sound reports of some trials."""
    used = {}
    missing = {number for number, row in found.items() if row["num_reports"]}
    for number, reports in groupby(_reports(connection, which), key=attrgetter("trial")):
        missing.discard(number)
        whose = f"of trial {number} of {_named(sweep)}"
        if number not in found:
            damage.append(f"there are reports {whose}, which is missing")
        elif _check_reports(found[number], rows := list(reports), whose, damage):
            used[number] = use(rows)
    damage += [
        f"the reports of trial {number} of {_named(sweep)} are missing" for number in missing
    ]
    return used


def trial_sums(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    holder: Mapping[str, Any] | None,
    damage: Damage,
) -> list[tuple[int, int]]:
    """Number and sum of every trial; their total is verified, but not the rows themselves."""
    query = sa.select(TRIALS.c.number, TRIALS.c.sum).where(TRIALS.c.sweep == sweep["id"])
    found = [(row.number, row.sum) for row in connection.execute(query.order_by(TRIALS.c.number))]
    kept = (len(found), sums.added(0, *(total for _, total in found)))
    expected = (holder["num_trials"], holder["trials_total"]) if holder else (0, 0)
    if not damage and kept != expected:
        damage.append(_incomplete(f"of the trials of {_named(sweep)}", expected[0]))
    return found


def trial(row: Mapping[str, Any], sweep: Mapping[str, Any], damage: Damage) -> None:
    """Verify a row of `trials`."""
    _check(sums.TRIAL, row, f"trial {row['number']} of {_named(sweep)}", damage)


def trial_events(
    connection: sa.Connection, sweep: Mapping[str, Any], number: int, damage: Damage
) -> list[Row]:
    """The events of one trial, in order; each is verified, but not that none is missing."""
    mine = (EVENTS.c.sweep == sweep["id"]) & (EVENTS.c.trial == number)
    found = read(connection, sa.select(EVENTS).where(mine).order_by(EVENTS.c.id))
    for row in found:
        checksum = sums.COMMAND if row["kind"] == COMMAND else sums.EVENT
        _check(checksum, row, f"event {row['id']} of {_named(sweep)}", damage)
    return found


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


@dataclass(frozen=True)
class CommandsRead:
    """How far the commands of a sweep were read: the last one's id, their number and total."""

    last: int = 0
    num: int = 0
    total: int = 0

    def then(self, found: Iterable[Row]) -> "CommandsRead":
        """The same after more commands, in order."""
        kept = [(row["id"], row["sum"]) for row in found]
        last = max([self.last, *(identity for identity, _ in kept)])
        total = sums.added(self.total, *(value for _, value in kept))
        return CommandsRead(last, self.num + len(kept), total)


NONE_READ: Final = CommandsRead()


def commands(
    connection: sa.Connection,
    sweep: Mapping[str, Any],
    damage: Damage,
    after: CommandsRead = NONE_READ,
) -> list[Row]:
    """Every command to a sweep, in order, or those `after` others that were read before."""
    mine = (EVENTS.c.sweep == sweep["id"]) & (EVENTS.c.kind == COMMAND)
    newer = mine & (EVENTS.c.id > after.last)
    found = read(connection, sa.select(EVENTS).where(newer).order_by(EVENTS.c.id))
    _check_commands(found, sweep, damage, after)
    return found


def answer(
    connection: sa.Connection, sweep: Mapping[str, Any], command: int, damage: Damage
) -> Row | None:
    """The event that answers a request; None if there is none yet. It comes after the request."""
    mine = (EVENTS.c.sweep == sweep["id"]) & (EVENTS.c.kind == ANSWER)
    for row in read(connection, sa.select(EVENTS).where(mine & (EVENTS.c.id > command))):
        _check(sums.EVENT, row, f"event {row['id']} of {_named(sweep)}", damage)
        if not damage and command_of(row["payload"]) == command:
            return row
    return None


def _check_commands(
    found: list[Row],
    sweep: Mapping[str, Any],
    damage: Damage,
    before: CommandsRead = NONE_READ,
) -> None:
    for row in found:
        _check(sums.COMMAND, row, f"command {row['id']} of {_named(sweep)}", damage)
    after = before.then(found)
    if not damage and (after.num, after.total) != (sweep["num_commands"], sweep["commands_total"]):
        num = sweep["num_commands"]
        damage.append(
            f"records of the commands of {_named(sweep)} are missing or old: {num} were recorded"
        )


def _reports(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Iterator[ReportRow]:
    key = (REPORTS.c.trial, REPORTS.c.attempt, REPORTS.c.sequence)
    query = sa.select(REPORTS).where(which).order_by(*key)
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
        damage.append(_incomplete(whose, expected[0]))


def _incomplete(whose: str, num_recorded: int) -> str:
    return f"records {whose} are missing or old: {num_recorded} were recorded"


def _named(sweep: Mapping[str, Any]) -> str:
    return f"sweep {sweep['name']!r}"
