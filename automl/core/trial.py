"""A trial, its reports, and the state machine that its events drive.

    waiting -> running -> completed | stopped | failed | paused | interrupted
    paused -> waiting | stopped
    interrupted -> waiting | stopped | failed

`Trial` is an immutable value. The ledger stores events; a trial is the fold of its events.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from automl.errors import AutomlError
from workers.protocol import Cause, Metrics, Params

from .goals import Constraint, Goal

if TYPE_CHECKING:
    from .events import Leased


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
        self.goal, self.constraints = goal, tuple(constraints)
        self._rows = array("d")
        self._metrics: dict[str, float] = {}  # the newest that the constraints need
        # Of the reports that lack the metrics of these constraints and satisfy the others: the
        # places at which the loss was smaller than ever before.
        self._records: dict[tuple[Constraint, ...], array[int]] = {}

    def __len__(self) -> int:
        return len(self._rows) // WIDTH

    def __getitem__(self, place: int) -> CurvePoint:  # type: ignore[override]
        place = range(len(self))[place]
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

    __slots__ = ("_count", "_curves", "_points")

    def __init__(self, points: Iterable[ReportPoint] = ()) -> None:
        self._points = list(points)
        self._count = len(self._points)
        self._curves: list[LearningCurve] = []

    def with_added(self, point: ReportPoint) -> ReportLog:
        """A log with one more report at its end."""
        if len(self._points) != self._count:
            return ReportLog((*self, point))
        made = object.__new__(ReportLog)
        made._points, made._curves, made._count = self._points, self._curves, self._count + 1
        self._points.append(point)
        return made

    @property
    def last(self) -> ReportPoint | None:
        """The newest report; None if there is none."""
        return self._points[self._count - 1] if self._count else None

    def first(self, metric: str) -> ReportPoint | None:
        """The first report that has a metric; None if there is none."""
        return next((point for point in self if metric in point.metrics), None)

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

    def __getitem__(self, index: Any) -> Any:
        places = range(self._count)[index]
        if isinstance(places, range):  # of a slice
            return tuple(self._points[place] for place in places)
        return self._points[places]

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


class TrialState(StrEnum):
    """The state of a trial; the command line's JSON has these names."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def finished(self) -> bool:
        """Whether the trial never runs again."""
        return self in (TrialState.COMPLETED, TrialState.STOPPED, TrialState.FAILED)


_S = TrialState
TRANSITIONS: Final[Mapping[TrialState, frozenset[TrialState]]] = {
    _S.WAITING: frozenset({_S.RUNNING, _S.FAILED, _S.STOPPED, _S.INTERRUPTED}),
    _S.RUNNING: frozenset(
        {
            _S.COMPLETED,
            _S.STOPPED,
            _S.FAILED,
            _S.PAUSED,
            _S.INTERRUPTED,
            _S.WAITING,
        }
    ),
    _S.PAUSED: frozenset({_S.WAITING, _S.STOPPED}),
    _S.INTERRUPTED: frozenset({_S.WAITING, _S.STOPPED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.FAILED: frozenset(),
}
ANEW: Final = "anew"  # key of an attempt's details: it used nothing of those before it
_LEARNED: Final = ("out_of_memory", "timeout", "non_finite")  # the first trials may all have them
AGENT: Final = "agent "  # begins the name of the worker if an agent runs the trial


@dataclass(frozen=True, repr=False)
class Trial:
    """One configuration in a sweep, and its results.

    Args:
        number: from 0; the default configuration is 0.
        params: the active parameters.
        state: see `TrialState`.
        metrics: the newest reported values, updated by the returned metrics. The controller adds
            `seconds` and `peak_memory_bytes` if the trial does not report them itself.
        returned: names of the metrics that its newest attempt has returned, not only reported.
        seed: of the trial, from `Optimizer.ask`; None elsewhere.
        value: what the first goal compares; None if the trial has none, and outside of a `Result`
            or an `Optimizer`, where no goal is known.
        value_from: where the value comes from: "returned", "best report, at step 3", "last report"
            or "measured"; "" if there is none.
        failure: one of `FAILURE_KINDS`, or None.
        message: describes the failure or ending to a person.
        attempts: how many attempts were begun.
        seconds: wall-clock seconds, summed over all attempts.
        peak_memory_bytes: the largest of ranks and attempts; None if it was not measured.
        reports: in order of step.
        source: of the configuration: a suggester's name, "default", "enqueued", "added" or
            "transferred".
        started, ended: seconds since the sweep began, on the dispatcher's clock; None before.
        details: further facts (memory by module, `traceback` of an exception); they decide nothing.
        worker: host and process of the newest attempt; begins with `AGENT` if an agent runs it.
        retries: attempts that were begun because a worker was lost.
        held: a person has paused it, so only a person resumes it.
        pruned: it has stopped by itself (TrialPruned), so it has no value.
        lease: of the agent that runs it; None if it does not run, or a worker runs it.
        cause, exit_status: of its newest failure, see `Outcome`.
        exception: class of the exception that the objective raised; "" if it raised none.
        raised_at: the line that raised it, such as `train.py:12`; "" likewise.
        estimated_memory_bytes: of a rank, before it was run; None if there was no estimate.
        replicate_of: number of the first trial of its configuration, which it runs again with
            another seed; None if it is the first.
        asked: the ranges that its objective has asked for, by name, as parameters' dictionaries
            with the `line` that did; None if it has asked for none.
    """

    number: int
    params: Params
    state: TrialState = TrialState.WAITING
    metrics: Metrics = field(default_factory=dict)
    failure: str | None = None
    message: str = ""
    attempts: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    reports: ReportLog = field(default_factory=ReportLog)
    source: str = ""
    started: float | None = None
    ended: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    retries: int = 0
    held: bool = False
    pruned: bool = False
    lease: Leased | None = None
    cause: Cause | None = None
    exit_status: int | None = None
    exception: str = ""
    raised_at: str = ""
    estimated_memory_bytes: int | None = None
    returned: tuple[str, ...] = ()
    replicate_of: int | None = None
    asked: Mapping[str, Any] | None = None
    seed: int | None = field(default=None, compare=False)
    value: float | None = field(default=None, compare=False)
    value_from: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        reports: Any = self.reports
        if not isinstance(reports, ReportLog):  # any sequence is accepted
            object.__setattr__(self, "reports", ReportLog(reports))

    @property
    def error(self) -> tuple[str, ...]:
        """Equal for trials that failed alike: at the same line, or with the same exit status."""
        status = "" if self.exit_status is None else str(self.exit_status)
        place = self.raised_at or status
        return self.failure or "", self.cause or "", self.exception, place

    @property
    def died_by_itself(self) -> bool:
        """Whether its attempt has ended its own worker, as by `os._exit` or a wrong address."""
        own = self.cause in (Cause.EXITED, Cause.SIGNALLED)
        return own and not self.exception and self.failure == "crashed"

    @property
    def ended_from_outside(self) -> bool:
        """Whether it failed by its machine: its process was killed, or the disk is full."""
        outside = self.cause in (Cause.KILLED, Cause.DISK)
        return outside and self.failure in ("crashed", "preempted")

    @property
    def is_mistake(self) -> bool:
        """Whether it failed by what is probably a mistake in the objective."""
        arithmetic = self.failure == "non_finite" and self.exception not in ("", "TrialFailure")
        learned = self.failure in _LEARNED and not arithmetic  # the suggester goes elsewhere
        if self.state is not TrialState.FAILED or self.failure == "preempted" or learned:
            return False
        known = self.exception not in ("", "TrialPruned") or self.failure == "missing_metric"
        return bool(known) or self.died_by_itself

    @property
    def traceback(self) -> str:
        """The traceback of the objective's exception; "" if it raised none."""
        return str(self.details.get("traceback", ""))

    @property
    def facts(self) -> dict[str, Any]:
        """The details but for what no person asks for, and who has run the trial, for a person."""
        names = ("worker", "exception", "retries", "estimated_memory_bytes")
        typed = {name: value for name in names if (value := getattr(self, name))}
        return typed | {k: v for k, v in self.details.items() if k != ANEW}

    def summary(self) -> dict[str, Any]:
        """The object that `automl trials --json` prints."""
        return {
            "number": self.number,
            "params": dict(self.params),
            "state": str(self.state),
            "metrics": dict(self.metrics),
            "failure": self.failure,
            "message": self.message,
            "attempts": self.attempts,
            "seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "source": self.source,
            "replicate_of": self.replicate_of,
        }

    def __repr__(self) -> str:
        """The trial in a line, without its reports."""
        value = "" if self.value is None else f", value={self.value:.6g}"
        failure = f" ({self.failure}: {self.message[:100]!r})" if self.failure else ""
        return f"Trial({self.number}, {self.state}{failure}{value}, params={dict(self.params)!r})"


def without_held(trial: Trial) -> Trial:
    """The trial as stoppers see it: one that a person has paused is interrupted.

    So no rule resumes it, until the person does.
    """
    if trial.state is TrialState.PAUSED and trial.held:
        return replace(trial, state=TrialState.INTERRUPTED)
    return trial


def check_transition(before: TrialState, after: TrialState) -> None:
    """Raise AutomlError if a trial may not go from `before` to `after`."""
    if after not in TRANSITIONS[before]:
        allowed = ", ".join(sorted(TRANSITIONS[before])) or "nothing, it is final"
        raise AutomlError(
            f"a trial cannot go from {before} to {after}; from {before} it can go to: {allowed}"
        )
