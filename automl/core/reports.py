"""The reports of a trial, an immutable sequence that grows in constant time, and their curve."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Final, NamedTuple, overload

from workers.protocol import Metrics

from .goals import Constraint, Goal


class CurvePoint(NamedTuple):
    """A trial at one of its reports. Losses are the goal's: smaller is better.

    Args:
        step, seconds: the largest so far, so that they ascend even if a trial counts back.
        loss: of this report; NaN if it has no finite value.
        newest: the newest finite loss so far; infinite before the first.
        best: the best so far: `newest` for a goal at the end, else `lowest`.
        lowest: the smallest so far, whether the constraints hold or not.
        excess: by how much the newest metrics violate the constraints (`violation`).
    """

    step: float
    seconds: float
    loss: float
    newest: float
    best: float
    lowest: float
    excess: float


WIDTH: Final = len(CurvePoint._fields)
LOSS: Final = CurvePoint._fields.index("loss")


class LearningCurve(Sequence[CurvePoint]):
    """A point for each report of a trial.

    Adding a report takes constant time and changes no earlier point. `ReportLog.curve` makes the
    curve of a trial and keeps it, so it may have more points than a reader's trial has reports.

    Args:
        goal: whose losses the points have.
        constraints: which the reported metrics should satisfy.
    """

    __slots__ = ("_metrics", "_records", "_rows", "constraints", "goal")

    def __init__(self, goal: Goal, constraints: Sequence[Constraint] = ()) -> None:
        self.goal = goal
        self.constraints = tuple(constraints)
        self._rows = array("d")
        self._metrics: dict[str, float] = {}  # the newest that the constraints need
        # Of the reports that lack the metrics of these constraints and satisfy the others: the
        # places at which the loss was smaller than ever before.
        self._records: dict[tuple[Constraint, ...], array[int]] = {}

    def __len__(self) -> int:
        return len(self._rows) // WIDTH

    def __getitem__(self, place: int) -> CurvePoint:  # type: ignore[override]
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} points, got index {place}")
        return CurvePoint(*self._rows[place * WIDTH : (place + 1) * WIDTH])

    def table(self, count: int) -> Sequence[float]:
        """The first `count` points, one after the other: `count * WIDTH` numbers."""
        return self._rows[: count * WIDTH]

    @property
    def is_feasible(self) -> bool:
        """Whether the newest metrics satisfy every constraint."""
        return all(c.holds(self._metrics) for c in self.constraints)

    def add(self, metrics: Metrics, step: float = 0.0, seconds: float = 0.0) -> CurvePoint:
        """Add the next report."""
        rows, goal = self._rows, self.goal
        loss = goal.loss(metrics.get(goal.metric, math.nan))
        newest = lowest = math.inf
        excess = 0.0
        if rows:
            before_step, before_seconds, _, newest, _, lowest, _ = rows[-WIDTH:]
            step, seconds = max(step, before_step), max(seconds, before_seconds)
        if math.isfinite(loss):
            newest, lowest = loss, min(lowest, loss)
            self._record(len(self), loss, metrics)
        else:
            loss = math.nan
        if self.constraints:
            needed = {c.metric: metrics[c.metric] for c in self.constraints if c.metric in metrics}
            self._metrics.update(needed)
            excess = violation(self._metrics, self.constraints)
        best = newest if goal.at_end else lowest
        point = CurvePoint(step, seconds, loss, newest, best, lowest, excess)
        rows.extend(point)
        return point

    def first(self, count: int, least: float, *, timed: bool) -> int:
        """The place of the first point with `least` seconds (if `timed`) or steps, or more.

        Args:
            count: of points that are considered, the first; the answer if there is none.
        """
        return bisect_left(range(count), least, key=lambda place: self._rows[place * WIDTH + timed])

    def leader(self, count: int, final: Metrics) -> int | None:
        """The place of the best report that satisfies the constraints, the first of equals.

        Args:
            count: only that many reports, the first, are considered.
            final: metrics of the trial, for a constraint whose metric a report lacks.
        """
        found: tuple[float, int] | None = None
        for lacking, records in list(self._records.items()):
            place = records[-1] if records[-1] < count else records[bisect_left(records, count) - 1]
            if place < count and all(c.holds(final) for c in lacking):  # else all are later
                item = self._rows[place * WIDTH + LOSS], place
                found = item if found is None or item < found else found
        return None if found is None else found[1]

    def _record(self, place: int, loss: float, metrics: Metrics) -> None:
        lacking: tuple[Constraint, ...] = ()
        if self.constraints:
            lacking = tuple(c for c in self.constraints if c.metric not in metrics)
            if not all(c in lacking or c.holds(metrics) for c in self.constraints):
                return
        records = self._records.get(lacking)
        if records is None:
            self._records[lacking] = array("q", (place,))
        elif loss < self._rows[records[-1] * WIDTH + LOSS]:
            records.append(place)


def violation(metrics: Metrics, constraints: Sequence[Constraint]) -> float:
    """By how much metrics violate constraints, summed; an unknown metric violates none."""
    return sum(
        (max(c.excess(metrics[c.metric]), 0.0) for c in constraints if c.metric in metrics), 0.0
    )


_ADDING = Lock()  # to a curve: the suggester and the controller read trials in different threads


class ReportPoint(NamedTuple):
    """One report: metrics at a step.

    Args:
        seconds: training seconds of the trial until then.
        attempt, sequence: identify the report: its attempt, and its number from 0 in there.
    """

    step: int
    metrics: Metrics
    seconds: float
    attempt: int = 1
    sequence: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Its place in the order of reports."""
        return self.attempt, self.sequence


class ReportLog(Sequence[ReportPoint]):
    """Reports in order; equal to any sequence of the same reports.

    `with_added` shares the points, and the learning curves, with the log that it was made from, so
    a trial with many reports takes one step a report. A second log made from the same one copies
    the points.
    """

    __slots__ = ("_count", "_curves", "_first", "_points")

    def __init__(self, points: Iterable[ReportPoint] = ()) -> None:
        self._points = list(points)
        self._count = len(self._points)
        self._curves: list[LearningCurve] = []
        self._first: dict[str, int] = {}  # of each metric: the first report that has it
        for place, point in enumerate(self._points):
            for metric in point.metrics:
                if metric not in self._first:
                    self._first[metric] = place

    def with_added(self, point: ReportPoint) -> ReportLog:
        """A log with one more report at its end."""
        if len(self._points) != self._count:
            return ReportLog((*self, point))
        made = object.__new__(ReportLog)
        made._points = self._points
        made._curves = self._curves
        made._first = self._first
        made._count = self._count + 1
        for metric in point.metrics:
            self._first.setdefault(metric, self._count)
        self._points.append(point)
        return made

    @property
    def last(self) -> ReportPoint | None:
        """The newest report; None if there is none."""
        return self._points[self._count - 1] if self._count else None

    def first(self, metric: str) -> ReportPoint | None:
        """The first report that has a metric; None if there is none."""
        place = self._first.get(metric, self._count)
        return self._points[place] if place < self._count else None

    def curve(self, goal: Goal, constraints: Iterable[Constraint] = ()) -> LearningCurve:
        """The learning curve of these reports. It is kept: each report is read once.

        It may have more entries than this log has reports, namely those of later logs.
        """
        bounds = tuple(constraints)
        with _ADDING:
            for curve in self._curves:
                if curve.constraints == bounds and (curve.goal is goal or curve.goal == goal):
                    break
            else:
                curve = LearningCurve(goal, bounds)
                self._curves.append(curve)
            for point in self._points[len(curve) : self._count]:
                curve.add(point.metrics, point.step, point.seconds)
        return curve

    @overload
    def __getitem__(self, index: int) -> ReportPoint: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ReportPoint]: ...

    def __getitem__(self, index: int | slice) -> ReportPoint | Sequence[ReportPoint]:
        if isinstance(index, slice):
            return tuple(self._points[i] for i in range(*index.indices(self._count)))
        if not -self._count <= index < self._count:
            raise IndexError(f"there are {self._count} reports, got index {index}")
        return self._points[index % self._count]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ReportPoint]:
        return islice(self._points, self._count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return ReportLog, (tuple(self),)
