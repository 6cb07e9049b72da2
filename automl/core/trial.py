"""A trial, the state machine that its events drive, and an index of trials by state.

    waiting -> running -> completed | stopped | failed | paused | interrupted
    paused -> waiting | stopped
    interrupted -> waiting | stopped | failed

`Trial` is an immutable value. The ledger stores events; a trial is the fold of its events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from automl.errors import AutomlError
from workers.protocol import Cause, Metrics, Params, StopRequest

from .reports import ReportLog


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
        {_S.COMPLETED, _S.STOPPED, _S.FAILED, _S.PAUSED, _S.INTERRUPTED, _S.WAITING}
    ),
    _S.PAUSED: frozenset({_S.WAITING, _S.STOPPED}),
    _S.INTERRUPTED: frozenset({_S.WAITING, _S.STOPPED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.FAILED: frozenset(),
}
ANEW: Final = "anew"  # key of an attempt's details: it used nothing of those before it
_LEARNED: Final = ("out_of_memory", "timeout", "non_finite")  # the first trials may all have them
_CERTAIN: Final = ("WrongReturn", "UnknownAttribute")
AGENT: Final = "agent "  # begins the name of the worker if an agent runs the trial


@dataclass(frozen=True)
class AgentLease:
    """An agent's hold on the running attempt of a trial; see `core.events.Leased`."""

    agent: str
    seconds: float
    until: float
    asked: StopRequest | None = None
    reason: str = ""
    held: bool = False


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
    lease: AgentLease | None = None
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
    def is_certain(self) -> bool:
        """Whether every trial would fail so: a result of the wrong kind, an unknown attribute."""
        return self.exception in _CERTAIN

    @property
    def is_mistake(self) -> bool:
        """Whether it failed by what is probably a mistake in the objective."""
        if self.state is not TrialState.FAILED or self.failure == "preempted" or self.teaches:
            return False
        known = self.exception not in ("", "TrialPruned") or self.failure == "missing_metric"
        return bool(known) or self.died_by_itself

    @property
    def teaches(self) -> bool:
        """Whether the suggester learns from its failure where not to go."""
        arithmetic = self.failure == "non_finite" and self.exception not in ("", "TrialFailure")
        return self.failure in _LEARNED and not arithmetic

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


class TrialIndex:
    """The trials of a sweep: waiting, running, and known ones (finished, paused or interrupted)."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._known: list[Trial] = []
        self._numbers: list[int] = []  # of the known trials
        self._running: dict[int, Trial] = {}
        self._leased: dict[int, Trial] = {}
        self._waiting: dict[int, Trial] = {}
        self.held: set[int] = set()  # numbers of those that people have paused
        for trial in trials:
            self.update(trial)

    @property
    def known(self) -> list[Trial]:
        """Finished, paused and interrupted trials, by number; later updates change this list."""
        return self._known

    @property
    def pending(self) -> list[Trial]:
        """Waiting and running trials, by number."""
        return _by_number(self._waiting | self._running)

    @property
    def running(self) -> list[Trial]:
        """Running trials, in no order."""
        return list(self._running.values())

    @property
    def num_running(self) -> int:
        """How many trials run."""
        return len(self._running)

    @property
    def leased(self) -> list[Trial]:
        """Running trials that agents hold, in no order."""
        return list(self._leased.values())

    @property
    def waiting(self) -> list[Trial]:
        """Waiting trials, by number."""
        return _by_number(self._waiting)

    @property
    def next_waiting(self) -> Trial | None:
        """The waiting trial with the lowest number."""
        return self._waiting[min(self._waiting)] if self._waiting else None

    def update(self, trial: Trial) -> None:
        """Add a new trial, or replace one that has changed."""
        number, state = trial.number, trial.state
        for group in (self._running, self._leased, self._waiting):
            group.pop(number, None)
        self.held.discard(number)
        place = bisect_left(self._numbers, number)
        if place < len(self._numbers) and self._numbers[place] == number:
            del self._numbers[place], self._known[place]
        if state is TrialState.RUNNING:
            self._running[number] = trial
            if trial.lease is not None:
                self._leased[number] = trial
        elif state is TrialState.WAITING:
            self._waiting[number] = trial
        else:
            self._numbers.insert(place, number)
            self._known.insert(place, trial)
        if trial.held and state is TrialState.PAUSED:
            self.held.add(number)


def _by_number(trials: Mapping[int, Trial]) -> list[Trial]:
    return [trials[number] for number in sorted(trials)]
