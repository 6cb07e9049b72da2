"""Follows one sweep: after the first time, only the rows that have changed are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from automl.core import ReportLog, ReportPoint, Trial
from automl.core.events import lineage

from . import audit, rows, sums
from .rows import ReportRow, Row
from .schema import REPORTS, TRIALS

MOST_CHANGED: Final = 400  # trials; if more have changed, all are read
Read = Callable[[sa.Connection, Row, Row | None, audit.Damage], Any]


@dataclass
class _Known:
    """What was read: each trial, the sum of its row, number and total of its reports."""

    trials: list[Trial] = field(default_factory=list)
    sums: dict[int, int] = field(default_factory=dict)
    reports: dict[int, tuple[int, int]] = field(default_factory=dict)

    def put(self, row: Row, trial: Trial) -> None:
        number = trial.number
        self.sums[number] = row["sum"]
        self.reports[number] = row["num_reports"], row["reports_total"]
        if number < len(self.trials):
            self.trials[number] = trial
        else:
            self.trials.append(trial)


class Follower:
    """One sweep as it was last read. `Ledger.follow` makes one; use it from one thread at a time.

    Args:
        read: runs a function of the sweep's rows in a transaction, and verifies what it reads.
        state: the state that people see, from the rows of the sweep and of its holder.
        read_points: the reports of one trial from their rows.
        condense: from the row of the sweep, a function that leaves out the reports of a finished
            trial that nobody needs.

    Attributes:
        row: of the sweep, with the state that people see.
        holder: the row of its controller; None if none runs.
        trials: by number. The list is a new one after each change.
        epoch: grows if the sweep was replaced by another one of its name, or mended.
    """

    def __init__(
        self,
        read: Callable[[Read], Any],
        state: Callable[[sa.Connection, Row, Row | None, audit.Damage], str],
        read_points: Callable[[list[ReportRow]], ReportLog],
        condense: Callable[[Row], Callable[[Trial], Trial]],
    ) -> None:
        self._read_verified = read
        self._state = state
        self._points = read_points
        self._condense = condense
        self._known = _Known()
        self._version: tuple[int, ...] | None = None
        self.row: Row = {}
        self.holder: Row | None = None
        self.trials: Sequence[Trial] = ()
        self.epoch = 0

    def refresh(self) -> Sequence[int]:
        """Read what has changed; return the numbers of the trials that changed.

        Raises:
            StoreError: what was read is damaged, or the store cannot be read.
            UsageError: the sweep was deleted.
        """
        before = self._version
        try:
            changed: Sequence[int] = self._read_verified(self._read)
        except BaseException:
            self._version = None  # half of a change may be known
            raise
        if changed or self._version != before:
            self.trials = tuple(self._known.trials)
        return changed

    def num_reports(self, number: int) -> int:
        """How many reports a trial has made, also those that are not kept."""
        return self._known.reports[number][0]

    def _read(
        self, connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
    ) -> Sequence[int]:
        state = self._state(connection, row, holder, damage)
        self.row = row | {"state": state}
        self.holder = holder if state == "running" else None
        controller = holder or dict.fromkeys(("fence", "commits", "trials_total"), 0)
        version = (
            row["id"],
            controller["fence"],
            controller["commits"],
            controller["trials_total"],
        )
        if version == self._version:
            return ()
        changed = None
        if self._version and self._version[0] == row["id"]:
            changed = self._read_changed(connection, row, holder, damage)
        if changed is None:
            changed = self._read_all(connection, row, holder, damage)
        self._version = None if damage else version
        return changed

    def _read_all(
        self, connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
    ) -> Sequence[int]:
        found, points = audit.trials(connection, row, holder, damage, self._points)
        self._known = _Known()
        self.epoch += 1
        if damage:
            return ()
        short = self._condense(row)
        for one in found:
            self._put(one, points.pop(one["number"], ReportLog()), short)
        return range(len(found))

    def _read_changed(
        self, connection: sa.Connection, row: Row, holder: Row | None, damage: audit.Damage
    ) -> Sequence[int] | None:
        """The numbers of the trials that changed; None if all must be read again."""
        known = self._known.sums
        found = self._open_sums(connection, row, holder)
        if found is None:
            found = audit.trial_sums(connection, row, holder, damage)
        changed = [number for number, total in found if known.get(number) != total]
        is_longer = [number for number, _ in found] == list(range(len(found)))
        if len(changed) > MOST_CHANGED or len(found) < len(known) or not is_longer:
            return None
        mine = (TRIALS.c.sweep == row["id"]) & TRIALS.c.number.in_(changed)
        query = sa.select(TRIALS).where(mine).order_by(TRIALS.c.number)
        for one in audit.read(connection, query):
            audit.trial(one, row, damage)
            log = self._log(connection, one)
            if log is None:
                return None
            self._put(one, log, self._condense(row))
        return changed

    def _open_sums(
        self, connection: sa.Connection, row: Row, holder: Row | None
    ) -> list[tuple[int, int]] | None:
        """Number and sum of every trial, of which only those that can have changed are read.

        These are the trials that have not finished, and new ones. The total of all sums tells
        whether no other one has changed; the answer is None if one has.
        """
        known = dict(self._known.sums)
        unfinished = [trial.number for trial in self._known.trials if not trial.state.finished]
        if holder is None or len(unfinished) > MOST_CHANGED:
            return None
        which = (TRIALS.c.number >= len(known)) | TRIALS.c.number.in_(unfinished)
        query = sa.select(TRIALS.c.number, TRIALS.c.sum).where(
            (TRIALS.c.sweep == row["id"]) & which
        )
        read = {found.number: found.sum for found in connection.execute(query)}
        if not read.keys() >= set(unfinished):
            return None
        known |= read
        kept = (len(known), sums.added(0, *known.values()))
        if kept != (holder["num_trials"], holder["trials_total"]):
            return None
        return sorted(known.items())

    def _put(self, row: Row, log: ReportLog, condense: Callable[[Trial], Trial]) -> None:
        trial = rows.trial_of(row, log)
        self._known.put(row, condense(trial) if trial.state.finished else trial)

    def _log(self, connection: sa.Connection, row: Row) -> ReportLog | None:
        """The reports of a trial, of which only the new ones are read; None if they do not add up.

        They do not if a report was late, or if the trial was finished and has gone on since.
        """
        number = row["number"]
        is_known = number < len(self._known.trials)
        log = self._known.trials[number].reports if is_known else ReportLog()
        count, total = self._known.reports.get(number, (0, 0))
        if (count, total) == (row["num_reports"], row["reports_total"]):
            return log
        attempt, sequence = log[-1].key if log else (0, 0)
        later = (REPORTS.c.attempt > attempt) | (
            (REPORTS.c.attempt == attempt) & (REPORTS.c.sequence > sequence)
        )
        mine = (REPORTS.c.sweep == row["sweep"]) & (REPORTS.c.trial == number)
        query = sa.select(REPORTS).where(mine & later if log else mine)
        query = query.order_by(REPORTS.c.attempt, REPORTS.c.sequence)
        for found in map(ReportRow._make, connection.execute(query)):
            if sums.REPORT.of(found[:-1]) != found.sum:
                return None
            count, total = count + 1, sums.added(total, found.sum)
            metrics = rows.metrics_of(found.metrics)
            point = ReportPoint(found.step, metrics, found.seconds, found.attempt, found.sequence)
            log = lineage(log, point)
        return log if (count, total) == (row["num_reports"], row["reports_total"]) else None
