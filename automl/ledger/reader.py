"""Reads a database, and verifies every row that it reads."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from automl.core import (
    Answered,
    Command,
    Proposed,
    ReportLog,
    ReportPoint,
    SweepSpec,
    Trial,
    ranking,
)
from automl.core.events import lineage_of
from automl.core.garbage import no_collection
from automl.core.names import check_name
from automl.errors import UsageError
from search_spaces.plugins import nearest

from . import audit, rows
from .audit import NONE_READ, CommandsRead
from .follower import Follower
from .lease import clock, holder_alive
from .newest import NewestCommits
from .rows import ReportRow, Row
from .schema import SWEEPS
from .store_errors import damaged, read_with_retry, translate_decoding_errors

T = TypeVar("T")


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


@dataclass(frozen=True)
class SweepContents:
    """A sweep as its next controller needs it.

    Args:
        sweep: its row; holder: the row of its last controller, None if there was none.
        trials: by number; trial_rows: their rows.
        begun: when the last attempt of each trial began, in seconds of the sweep.
        executed: identities of the commands that have become trials or were answered.
    """

    sweep: Row
    holder: Row | None
    trials: list[Trial]
    trial_rows: list[Row]
    begun: dict[int, float]
    executed: set[int]


class Reader:
    """Reads one database; waits for its server if that restarts.

    Every method raises StoreError if what it reads is damaged, and UsageError if there is no sweep
    of the name.

    Args:
        engine: of the database; name: of the store, for messages.
        newest: of a SQLite file; None for a server.
    """

    def __init__(self, engine: sa.Engine, name: str, newest: NewestCommits | None = None) -> None:
        # A method makes several queries, which must see one state of the database.
        is_server = engine.dialect.name == "postgresql"
        level: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if is_server else {}
        self._engine = engine.execution_options(**level)
        self._name = name
        self._newest = newest

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest one last."""
        return [entry.info for entry in self.heads()]

    def heads(self) -> list[SweepHead]:
        """Every sweep without its trials, the newest one last."""
        acknowledged = self._newest.read() if self._newest else {}

        def read(connection: sa.Connection, damage: audit.Damage) -> list[SweepHead]:
            found = audit.sweeps(connection, damage)
            holders, now = audit.holders(connection, found, damage), clock(connection)
            for row in found:
                audit.check_newest(row, holders.get(row["id"]), acknowledged, damage)
            return [_sweep_head(row, holders.get(row["id"]), now) for row in found]

        return self._verified(read)

    def follower(self, name: str) -> Follower:
        """A follower of a sweep; it reads nothing yet."""
        return Follower(
            lambda read: self._of_sweep(name, read),
            lambda connection, row, holder, damage: _state(
                row, _holder(connection, row, holder, damage)
            ),
            _points,
            _condense,
        )

    def trial(self, name: str, number: int) -> Trial | None:
        """One trial with all its reports; None if there is none of the number."""

        def read(
            connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
        ) -> list[Trial]:
            found, points = audit.one_trial(connection, row, number, damage, _points)
            return [] if damage else _trials(found, points)

        return next(iter(self._of_sweep(name, read)), None)

    def sweep(self, name: str) -> Row:
        """The row of a sweep."""
        return self._of_sweep(name, lambda connection, row, holder, damage: row)

    def holder(self, name: str) -> Row | None:
        """The controller that holds a sweep, or held it last; with `now` on its server's clock."""
        return self._of_sweep(name, _holder)

    def snapshot(self, name: str) -> tuple[Row, Row | None, list[Trial]]:
        """A sweep as it is at one instant.

        Returns:
            Its row, whose state is "interrupted" if its controller is gone; the controller if it
            runs; the trials.
        """

        def read(
            connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
        ) -> tuple[Row, Row | None, list[Trial]]:
            state = _state(row, _holder(connection, row, holder, damage))
            trials = _read_trials(connection, row, holder, damage)
            return row | {"state": state}, holder if state == "running" else None, trials

        return self._of_sweep(name, read)

    def trials(self, name: str) -> list[Trial]:
        """Every trial of a sweep by number, with its reports."""
        return self._of_sweep(name, _read_trials)

    def events(self, name: str) -> list[Row]:
        """Every event and command of a sweep, in order."""
        return self._of_sweep(name, audit.events)

    def trial_events(self, name: str, number: int) -> list[Row]:
        """The events of one trial, in order."""
        return self._of_sweep(
            name,
            lambda connection, row, _, damage: audit.trial_events(connection, row, number, damage),
        )

    def commands(
        self, name: str, after: CommandsRead = NONE_READ
    ) -> tuple[list[tuple[int, Command]], CommandsRead]:
        """Identity and command of every command to a sweep, in order.

        Args:
            after: how far they were read before, as an earlier call has returned it.

        Returns:
            The commands, and how far they have been read now.
        """
        found = self._of_sweep(
            name, lambda connection, row, _, damage: audit.commands(connection, row, damage, after)
        )
        with translate_decoding_errors(self._name):
            commands = [
                (row["id"], Command(**json.loads(row["payload"]) | {"sent": row["recorded"]}))
                for row in found
            ]
        return commands, after.then(found)

    def answer(self, name: str, command: int) -> tuple[Answered | None, Row | None]:
        """The answer to a request, None if there is none yet; and the sweep's last controller."""

        def read(
            connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
        ) -> tuple[Row | None, Row | None]:
            found = audit.answer(connection, row, command, damage)
            return found, _holder(connection, row, holder, damage)

        found, holder = self._of_sweep(name, read)
        if found is None:
            return None, holder
        with translate_decoding_errors(self._name):
            answer = rows.event_of(found["kind"], found["payload"])
        assert isinstance(answer, Answered)
        return answer, holder

    def contents(self, name: str) -> SweepContents:
        """All of a sweep, after each of its rows has been verified."""

        def read(
            connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
        ) -> SweepContents:
            trials, points = audit.trials(connection, row, holder, damage, _points)
            events = audit.events(connection, row, holder, damage)
            if damage:
                return SweepContents(row, holder, [], [], {}, set())
            begun = [json.loads(e["payload"]) for e in events if e["kind"] == "Begun"]
            commands = [
                rows.command_of(e["payload"])
                for e in events
                if e["kind"] in (Proposed.__name__, rows.ANSWER)
            ]
            return SweepContents(
                row,
                holder,
                _trials(trials, points),
                trials,
                {event["trial"]: event["at"] for event in begun},
                {command for command in commands if command is not None},
            )

        return self._of_sweep(name, read)

    def _of_sweep(
        self, name: str, read: Callable[[sa.Connection, Row, Row | None, audit.Damage], T]
    ) -> T:
        """What a function reads of a sweep, from the rows of the sweep and of its holder."""
        acknowledged = self._newest.read() if self._newest else {}

        def both(connection: sa.Connection, damage: audit.Damage) -> list[T]:
            query = sa.select(SWEEPS).where(SWEEPS.c.name == rows.storable(name))
            found = audit.read(connection, query)
            results = []
            for row in found:
                check_name(row["name"])  # it names a folder
                audit.sweep(row, damage)
                holder = audit.holder(connection, row, damage)
                audit.check_newest(row, holder, acknowledged, damage)
                results.append(read(connection, row, holder, damage))
            return results

        if found := self._verified(both):
            return found[0]
        known = [info.name for info in self.sweeps()]
        hint = nearest(name, known) if known else "it has no sweeps yet"
        raise UsageError(f"there is no sweep named {name!r} in {self._name}: {hint}")

    def _verified(self, read: Callable[[sa.Connection, audit.Damage], T]) -> T:
        def once(connection: sa.Connection) -> tuple[T, audit.Damage]:
            damage: audit.Damage = []
            return read(connection, damage), damage

        # it would scan all rows again and again
        with translate_decoding_errors(self._name), no_collection():
            found, damage = read_with_retry(self._engine, self._name, once)
        if damage:
            raise damaged(self._name, damage[0])
        return found


def _sweep_head(row: Row, holder: Row | None, now: float) -> SweepHead:
    state = _state(row, holder and holder | {"now": now})
    num_trials = holder["num_trials"] if holder else 0
    info = SweepInfo(row["name"], state, row["created"], row["seconds"], num_trials)
    fence, commits = (holder["fence"], holder["commits"]) if holder else (0, 0)
    version = (row["id"], fence, commits, row["sum"], row["progress_sum"])
    if holder and state == "running":
        return SweepHead(info, version, holder["host"], holder["pid"])
    return SweepHead(info, version, "", 0)


def _holder(
    connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
) -> Row | None:
    return holder and holder | {"now": clock(connection)}


def _state(row: Mapping[str, Any], holder: Mapping[str, Any] | None) -> str:
    if row["state"] != "running":
        return str(row["state"])
    return "running" if holder and holder["held"] and holder_alive(holder) else "interrupted"


def _read_trials(
    connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
) -> list[Trial]:
    found, points = audit.trials(connection, row, holder, damage, _points)
    return [] if damage else _trials(found, points)


def _trials(found: list[Row], points: Mapping[int, ReportLog]) -> list[Trial]:
    return [rows.trial_of(row, points.get(row["number"], ReportLog())) for row in found]


def _condense(row: Row) -> Callable[[Trial], Trial]:
    spec = SweepSpec.from_dict(json.loads(row["spec"]))
    return partial(ranking.condensed, goals=spec.goals, constraints=spec.constraints)


def _points(reports: list[ReportRow]) -> ReportLog:
    metrics = rows.metrics_of_all([row.metrics for row in reports])
    return lineage_of(
        ReportPoint(step, found, seconds, attempt, sequence)
        for (_, _, attempt, sequence, step, seconds, _, _), found in zip(
            reports, metrics, strict=True
        )
    )
