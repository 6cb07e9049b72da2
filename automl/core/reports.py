"""The reports of a trial: an immutable sequence that grows in constant time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, overload

from workers.protocol import Metrics

from .curve import LearningCurve
from .goals import Constraint, Goal

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

    def with_added(self, point: ReportPoint) -> "ReportLog":
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
