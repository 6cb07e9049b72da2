"""Queries of the ledger's tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from automl.core import ReportPoint, Trial
from automl.core.events import lineage_of
from automl.errors import UsageError
from search_spaces.plugins import nearest

from . import rows
from .lease import find_holder, holder_alive
from .schema import REPORTS, SWEEPS, TRIALS
from .store_errors import read_with_retry, translate_decoding_errors


@dataclass(frozen=True)
class SweepInfo:
    """A line of `automl list`: `created` in seconds since 1970, `state` as in `Snapshot`."""

    name: str
    state: str
    created: float
    seconds: float
    num_trials: int


class Reader:
    """Reads one database; waits for its server if that restarts.

    Args:
        engine: of the database; name: of the store, for messages.
    """

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    def rows(self, query: sa.Select[Any]) -> list[Mapping[str, Any]]:
        """The rows of a query."""
        found = read_with_retry(
            self._engine, self._name, lambda connection: connection.execute(query).mappings().all()
        )
        return [dict(row) for row in found]

    def sweeps(self) -> list[SweepInfo]:
        """Every sweep, the newest one last."""
        count = sa.select(sa.func.count()).where(TRIALS.c.sweep == SWEEPS.c.id).scalar_subquery()
        query = sa.select(SWEEPS, count.label("num_trials")).order_by(SWEEPS.c.id)
        return [
            SweepInfo(
                row["name"], self.state(row), row["created"], row["seconds"], row["num_trials"]
            )
            for row in self.rows(query)
        ]

    def sweep(self, name: str) -> Mapping[str, Any]:
        """The row of a sweep.

        Raises:
            UsageError: there is no sweep of that name.
        """
        found = self.rows(sa.select(SWEEPS).where(SWEEPS.c.name == name))
        if not found:
            known = [str(row["name"]) for row in self.rows(sa.select(SWEEPS.c.name))]
            hint = nearest(name, known) if known else "it has no sweeps yet"
            raise UsageError(f"there is no sweep named {name!r} in {self._name}: {hint}")
        return found[0]

    def holder(self, sweep_id: int) -> Mapping[str, Any] | None:
        """The row of the controller that holds a sweep, or held it last."""
        return read_with_retry(
            self._engine, self._name, lambda connection: find_holder(connection, sweep_id)
        )

    def state(self, row: Mapping[str, Any]) -> str:
        """The state of a sweep, from its row. A sweep whose controller is gone is interrupted."""
        if row["state"] != "running":
            return str(row["state"])
        holder = self.holder(row["id"])
        return "running" if holder and holder["held"] and holder_alive(holder) else "interrupted"

    def trials(self, sweep_id: int) -> list[Trial]:
        """Every trial of a sweep by number, with its reports."""
        with translate_decoding_errors(self._name):
            return read_with_retry(
                self._engine, self._name, lambda connection: _trials(connection, sweep_id)
            )


def _trials(connection: sa.Connection, sweep_id: int) -> list[Trial]:
    columns = (
        REPORTS.c.trial,
        REPORTS.c.attempt,
        REPORTS.c.sequence,
        REPORTS.c.step,
        REPORTS.c.seconds,
        REPORTS.c.metrics,
    )
    reports = sa.select(*columns).where(REPORTS.c.sweep == sweep_id).order_by(*columns[:3])
    trials = sa.select(TRIALS).where(TRIALS.c.sweep == sweep_id).order_by(TRIALS.c.number)
    points: dict[int, list[ReportPoint]] = {}
    found = [dict(row) for row in connection.execute(trials).mappings()]
    for trial, attempt, sequence, step, seconds, metrics in connection.execute(reports):
        point = ReportPoint(step, rows.metrics_of(metrics), seconds, attempt, sequence)
        points.setdefault(trial, []).append(point)
    return [rows.trial_of(row, lineage_of(points.get(row["number"], ()))) for row in found]
