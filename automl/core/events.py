"""The events of a sweep, and the pure function `fold` that turns them into trials.

Workers send `Started`, `Report` and `Asked` (workers.protocol); the controller adds the events
below. A worker's `Outcome` is recorded inside `Ended`, with the decision of the controller on it.
Folding is idempotent: a duplicate, or an event of an attempt that is over, changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from automl.errors import AutomlError
from workers.protocol import (
    Asked,
    Ending,
    Metrics,
    Outcome,
    Params,
    Report,
    Started,
    StopRequest,
)

from .trial import ANEW, ReportLog, ReportPoint, Trial, TrialState, check_transition

GRACE_SECONDS: Final = 30.0  # for running trials, once a note "end" says that the sweep ends


@dataclass(frozen=True)
class Created:
    """The first event of a sweep.

    Args:
        spec: of the sweep, as `SweepSpec.to_dict` writes it.
        environment: git commit, package versions and hardware.
    """

    spec: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class SpecChanged:
    """The sweep goes on with another specification: a larger budget, another space."""

    spec: Mapping[str, Any]
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class Closed:
    """A controller has ended its run of the sweep.

    Args:
        state: "finished", "interrupted" or "failed"; see `Snapshot`.
        reason: why the sweep has ended, for a person.
    """

    state: str
    reason: str = ""
    trial: None = None
    at: float = 0.0


@dataclass(frozen=True)
class Proposed:
    """A configuration becomes a trial.

    Args:
        source: who proposed it; at: seconds since the sweep began.
        command: identity of the command that asked for it, so that no command runs twice.
        replicate_of: the first trial of the configuration, if it runs again with another seed.
    """

    trial: int
    params: Params
    source: str
    at: float = 0.0
    command: int | None = None
    replicate_of: int | None = None


@dataclass(frozen=True)
class Begun:
    """An attempt is about to go to the dispatcher, and takes this many slots."""

    trial: int
    attempt: int
    at: float = 0.0
    slots: int = 1


@dataclass(frozen=True)
class Ended:
    """An attempt is over.

    Args:
        outcome: as the worker or the dispatcher sent it.
        state: the trial's next state; waiting if it is tried again.
        failure, message: decided by the controller. They differ from the outcome's if, for example,
            a goal is not finite.
    """

    outcome: Outcome
    state: TrialState
    failure: str | None = None
    message: str = ""
    at: float = 0.0

    @property
    def trial(self) -> int:
        """Number of the trial."""
        return self.outcome.trial


@dataclass(frozen=True)
class Moved:
    """A trial changes state without an outcome: resumed, given up, or lost with its controller.

    Args:
        seconds: wall-clock seconds of the lost attempt.
    """

    trial: int
    state: TrialState
    reason: str = ""
    at: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Noted:
    """A note that changes no state: a stopper's decision, a suggester that failed."""

    kind: str
    message: str
    trial: int | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Command:
    """A command to a sweep, by a person or an agent. Its controller obeys it within a second.

    Args:
        kind: "limits", "enqueue", "stop" (the sweep), or a request that gets an `Answered`: of
            agents or of people (`control.steering`).
        content: of "limits", the new limit of each parameter (`suggesters.domain`), None to release
            it; of "enqueue", a configuration; of a request, its arguments.
        by: who has sent it.
        sent: seconds since 1970 on the clock of the store, which sets it.
    """

    kind: str
    content: Mapping[str, Any]
    trial: int | None = None
    at: float = 0.0
    by: str = ""
    sent: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Answered:
    """The answer to a request. It is committed together with what the request has changed.

    Args:
        command: identity of the request.
        content: what it asked for, or `error` and `status` if it was refused.
    """

    command: int
    content: Mapping[str, Any]
    trial: int | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Leased:
    """An agent holds the running attempt of a trial until its lease is over (`control.steering`).

    Args:
        agent: who holds it.
        seconds: that the lease lasts after each sign of life.
        until: when it is over, in seconds since 1970 on the clock of the store.
        asked: what the agent is asked to end the attempt by; None while it may go on.
        reason: why.
        held: a person has asked for a pause, so only a person resumes the trial.
    """

    trial: int
    attempt: int
    agent: str
    seconds: float
    until: float
    asked: StopRequest | None = None
    reason: str = ""
    at: float = 0.0
    held: bool = False


SweepEvent = (
    Created
    | SpecChanged
    | Closed
    | Proposed
    | Begun
    | Started
    | Report
    | Asked
    | Ended
    | Moved
    | Noted
    | Command
    | Answered
    | Leased
)
TrialEvent = Report | Asked | Proposed | Begun | Started | Ended | Moved | Leased  # of a trial
OF_TRIALS: Final = get_args(TrialEvent)  # of a tuple `isinstance` takes a fifth of the time


def fold(trial: Trial | None, event: SweepEvent) -> Trial | None:
    """The trial after the event; the same object if the event changes nothing.

    Raises:
        AutomlError: the event cannot follow the earlier events of the trial.
    """
    if not isinstance(event, OF_TRIALS):
        return trial
    if isinstance(event, Proposed):
        return trial or Trial(
            event.trial,
            dict(event.params),
            source=event.source,
            replicate_of=event.replicate_of,
        )
    if trial is None:
        raise AutomlError(f"trial {event.trial} was never proposed, got {type(event).__name__}")
    if isinstance(event, Begun):
        return _begin(trial, event)
    if isinstance(event, Moved):
        return _move(trial, event)
    attempt = event.outcome.attempt if isinstance(event, Ended) else event.attempt
    if trial.state is not TrialState.RUNNING or attempt != trial.attempts:
        return trial
    if isinstance(event, Report):
        return _report(trial, event)
    if isinstance(event, Asked):
        return _ask(trial, event)
    if isinstance(event, Ended):
        return _end(trial, event)
    if isinstance(event, Leased):
        return _changed(trial, lease=event)
    if event.worker in ("", trial.worker):
        return trial
    return _changed(trial, worker=event.worker)


def lineage(points: ReportLog, point: ReportPoint) -> ReportLog:
    """Add a report, in order of attempt and sequence; the same log if it is a duplicate.

    The first report of a later attempt removes earlier reports from that step on: they were made
    after the checkpoint from which the attempt resumed.
    """
    last = points.last
    if last is not None and last.attempt < point.attempt:
        kept = [known for known in points if known.step < point.step]
        points = points if len(kept) == len(points) else ReportLog(kept)
        last = points.last
    if last is None or last.key < point.key:
        return points.with_added(point)
    place = bisect_left(points, point.key, key=lambda known: known.key)
    if points[place].key == point.key:
        return points
    return ReportLog((*points[:place], point, *points[place:]))


def reported(points: Iterable[ReportPoint]) -> dict[str, float]:
    """The newest value of every reported metric."""
    return {metric: value for point in points for metric, value in point.metrics.items()}


def final_metrics(trial: Trial, outcome: Outcome) -> Metrics:
    """Reported metrics updated by returned ones, and the controller's own if they are missing."""
    metrics = {**reported(trial.reports), **outcome.metrics}
    measured = {
        "seconds": outcome.seconds + (0.0 if outcome.details.get(ANEW) else trial.seconds),
        "peak_memory_bytes": _peak(trial, outcome),
        "estimated_memory_bytes": outcome.estimated_memory_bytes,
    }
    own = {n: float(v) for n, v in measured.items() if v is not None and n not in metrics}
    return metrics | own


def _changed(trial: Trial, **fields: Any) -> Trial:
    """The trial with other values of some fields: `dataclasses.replace` in a fifth of the time."""
    changed = object.__new__(Trial)
    vars(changed).update(vars(trial), **fields)
    return changed


def _peak(trial: Trial, outcome: Outcome) -> int | None:
    peaks = (trial.peak_memory_bytes, outcome.peak_memory_bytes)
    return max((peak for peak in peaks if peak is not None), default=None)


def _begin(trial: Trial, event: Begun) -> Trial:
    if event.attempt <= trial.attempts:
        return trial
    if event.attempt != trial.attempts + 1:
        raise AutomlError(
            f"attempt {event.attempt} of trial {trial.number} cannot follow attempt "
            f"{trial.attempts}: one is missing"
        )
    check_transition(trial.state, TrialState.RUNNING)
    return _changed(
        trial,
        state=TrialState.RUNNING,
        attempts=event.attempt,
        started=event.at if trial.started is None else trial.started,
        held=False,
        returned=(),
    )


def _report(trial: Trial, event: Report) -> Trial:
    point = ReportPoint(event.step, event.metrics, event.seconds, event.attempt, event.sequence)
    points = lineage(trial.reports, point)
    if points is trial.reports:
        return trial
    in_order = len(points) == len(trial.reports) + 1 and points.last is point
    metrics = {**trial.metrics, **event.metrics} if in_order else reported(points)
    return _changed(trial, reports=points, metrics=metrics)


def _ask(trial: Trial, event: Asked) -> Trial:
    name, asked = event.parameter["name"], {**event.parameter, "line": event.line}
    if (trial.asked or {}).get(name) == asked and trial.params[name] == event.params[name]:
        return trial
    params, ranges = {**trial.params, **event.params}, {**(trial.asked or {}), name: asked}
    return _changed(trial, params=params, asked=ranges)


def _end(trial: Trial, event: Ended) -> Trial:
    check_transition(trial.state, event.state)
    outcome = event.outcome
    is_retried = event.state is TrialState.WAITING and outcome.ending is Ending.FAILED
    estimated = outcome.estimated_memory_bytes
    params = trial.params
    if trial.asked is not None and event.state.finished:  # what nobody asked for had no effect
        params = {name: params[name] for name in trial.asked}
    return _changed(
        trial,
        params=params,
        state=event.state,
        metrics=final_metrics(trial, outcome),
        returned=tuple(outcome.metrics),
        failure=event.failure if event.state is TrialState.FAILED else None,
        message=event.message,
        seconds=trial.seconds + outcome.seconds,
        peak_memory_bytes=_peak(trial, outcome),
        ended=event.at if event.state.finished else None,
        details={**trial.details, **outcome.details},
        retries=trial.retries + is_retried,
        held=outcome.held,
        pruned=outcome.pruned,
        lease=None,
        cause=outcome.cause,
        exit_status=outcome.exit_status,
        exception=outcome.exception or trial.exception,
        raised_at=outcome.raised_at,
        estimated_memory_bytes=trial.estimated_memory_bytes if estimated is None else estimated,
    )


def _move(trial: Trial, event: Moved) -> Trial:
    if event.state is trial.state:
        return trial
    check_transition(trial.state, event.state)
    return _changed(
        trial,
        state=event.state,
        lease=None,
        message=event.reason,
        seconds=trial.seconds + event.seconds,
        ended=event.at if event.state.finished else None,
    )
