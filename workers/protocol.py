"""Messages between the controller and the workers: frozen, JSON-able, free of torch and Ray.

An `Assignment` goes to a worker. For each (trial, attempt) a `Started`, any number of `Report`s
and exactly one `Outcome` come back. The key of a report is (trial, attempt, sequence), so that
a duplicate is recognised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final, Literal

from search_spaces.errors import UsageError
from workers.files import Folder

Value = bool | int | float | str | tuple[Any, ...] | None
Params = Mapping[str, Value]
Metrics = Mapping[str, float]
_DIRECTIONS: Final = (None, "minimize", "maximize")
_ASPECTS: Final = ("quality", "speed", "memory", "quality and speed")
LOGS: Final = "logs"  # folder of a trial's logs, in its own
CHECKPOINTS: Final = "checkpoints"  # folder of a trial's checkpoints, in its own
WORK: Final = "work"  # folder of a command's own files
# Folders of a trial that are deleted once the trial is of no more use, or for want of disk.
DISPOSABLE: Final = (CHECKPOINTS, WORK)


@dataclass(frozen=True)
class Metric:
    """A number that a workload reports.

    Args:
        name: its key in a report.
        direction: which values are better; None for a number of which neither is, such as a count.
        aspect: "quality", "speed", "memory", or "quality and speed" (a time to reach a quality).

    Raises:
        UsageError: an argument is wrong.
    """

    name: str
    direction: Literal["minimize", "maximize"] | None = None
    aspect: Literal["quality", "speed", "memory", "quality and speed"] = "quality"

    def __post_init__(self) -> None:
        known = self.direction in _DIRECTIONS and self.aspect in _ASPECTS
        if not (known and self.name and isinstance(self.name, str)):
            raise UsageError(
                f"a metric has a name, a direction ({', '.join(map(repr, _DIRECTIONS))}) and an "
                f"aspect ({', '.join(map(repr, _ASPECTS))}), got {self.name!r:.100}, "
                f"{self.direction!r:.100}, {self.aspect!r:.100}"
            )

    @property
    def aspects(self) -> frozenset[str]:
        """The aspect as a set, as `affects` of a parameter has it."""
        return frozenset(self.aspect.split(" and "))


class Ending(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # on request; its metrics count
    PAUSED = "paused"  # on request; it left a checkpoint and goes on later
    FAILED = "failed"  # `failure` says why
    INTERRUPTED = "interrupted"  # the controller or the machine went away


class Cause(StrEnum):
    """What ended an attempt that has failed or whose worker is gone."""

    RAISED = "raised"  # an exception, see `exception` and `raised_at`
    EXITED = "exited"  # its process, with `exit_status`
    SIGNALLED = "signalled"  # its process, by a signal of its own doing
    KILLED = "killed"  # its process was killed from outside
    DISK = "disk"  # there is no room on the disk
    LOST = "lost"  # its worker or machine is gone


class StopRequest(StrEnum):
    """A request to end an attempt early, and what becomes of its trial."""

    STOP = "stop"  # the trial is over
    PAUSE = "pause"  # the trial may be resumed in this sweep
    INTERRUPT = "interrupt"  # the sweep itself ends; a resumed sweep goes on with the trial

    @property
    def ending(self) -> Ending:
        """The ending of an attempt that follows this request."""
        return _ENDINGS[self]


_ENDINGS = {
    StopRequest.STOP: Ending.STOPPED,
    StopRequest.PAUSE: Ending.PAUSED,
    StopRequest.INTERRUPT: Ending.INTERRUPTED,
}


@dataclass(frozen=True)
class Limits:
    """Limits at which an attempt ends by itself.

    Args:
        train_seconds: seconds of training after which a workload evaluates, reports and returns
            (`within` of a goal), summed over attempts; None for no limit.
        timeout_seconds: wall-clock seconds without a step or report of any rank after which the
            attempt counts as hung; None for no limit.
        memory_bytes: peak memory that a rank may use; None for all memory of the device.
    """

    train_seconds: float | None = None
    timeout_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Assignment:
    """One attempt at running one trial.

    Args:
        sweep: the sweep's name.
        trial: number of the trial in the sweep, from 0.
        attempt: from 1; grows with each retry or resumption.
        params: active parameters of the configuration.
        workload: name of the workload; None if the user's objective is run.
        goals: names of the goals' metrics; with one goal an objective may return a number.
        constrained: names of the metrics of constraints.
        data: the `data` section of the configuration; fixed: its `fixed` section.
        seed: of everything random in the attempt; the same for every attempt of a trial.
        folder: absolute path of the trial's folder, for checkpoints and logs.
        num_ranks: processes that the trial takes, one slot each.
        ranks_together: this many consecutive ranks must be on one node; it divides `num_ranks`.
        torchrun: whether the objective may have several ranks, which meet as under torchrun, so
            that its variables are set. (Workloads meet by themselves.)
        threads: CPU threads of a rank; gpus: GPUs of a rank, a fraction if several share one.
        resume: whether the attempt continues from the newest valid checkpoint in `folder`.
        previous_seconds: training seconds of earlier attempts.
        store: absolute path of a trusted folder above it, below which no link is followed; "" if
            the trial's folder is trusted itself.
        artifacts: location of the trial's snapshots (`workers.artifacts`); "" for none.
        asked: the ranges that trials have asked for (`workers.functions.suggesting`); None if the
            space was declared.
    """

    sweep: str
    trial: int
    attempt: int
    params: Params
    workload: str | None
    folder: str
    data: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    num_ranks: int = 1
    ranks_together: int = 1
    torchrun: bool = False
    threads: int = 1
    gpus: float = 0.0
    resume: bool = False
    previous_seconds: float = 0.0
    limits: Limits = field(default_factory=Limits)
    store: str = ""
    artifacts: str = ""
    goals: tuple[str, ...] = ()
    constrained: tuple[str, ...] = ()
    asked: Mapping[str, Any] | None = None

    @property
    def label(self) -> str:
        """Sweep, trial and configuration in one line, for the Ray dashboard and the logs.

        Characters that are not printable, such as a line feed, are escaped.
        """
        settings = " ".join(
            f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.params.items()
        )
        text = f"{self.sweep}/{self.trial}.{self.attempt} {settings}"
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

    @property
    def files(self) -> Folder:
        """The trial's folder, to be opened without following links."""
        root = self.store or self.folder
        return Folder(root, *Path(self.folder).relative_to(root).parts)


@dataclass(frozen=True)
class Started:
    """A worker has begun an attempt; `worker` is its host and process id."""

    trial: int
    attempt: int
    worker: str = ""


@dataclass(frozen=True)
class Report:
    """Metrics at a step.

    Args:
        sequence: from 0 within an attempt.
        step: number of updates or epochs, as the workload counts; never decreases in an attempt.
        metrics: every key as it was reported, float64.
        seconds: training seconds since the trial began, including earlier attempts.
    """

    trial: int
    attempt: int
    sequence: int
    step: int
    metrics: Metrics
    seconds: float


@dataclass(frozen=True)
class Asked:
    """An objective has asked for a parameter (`trial.suggest_float`).

    Args:
        params: the value that it got, by the parameter's name.
        parameter: the range, as `Parameter.to_dict` writes it.
        line: that has asked, such as `train.py:12`.
    """

    trial: int
    attempt: int
    params: Params
    parameter: Mapping[str, Any]
    line: str = ""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Args:
        ending: see `Ending`.
        metrics: that the workload or objective returned.
        failure: one of `search_spaces.errors.FAILURE_KINDS` if `ending` is FAILED, else None.
        message: describes the outcome to a person.
        seconds: wall-clock seconds of this attempt.
        peak_memory_bytes: the largest of the ranks; None if it was not measured.
        details: further facts for the report (memory by module, skipped steps); JSON. Nothing is
            decided by them.
        worker_lost: the process is gone; the attempt did not end by its own code.
        failed_at: when a rank failed, by the clock of its machine; None if it did not.
        cause: of a failure; None if no rule asks for it.
        exit_status: of a process that has ended by itself; below 0 the signal that ended it.
        exception: class of the exception that the objective raised; "" if it raised none.
        raised_at: the line that raised it, such as `train.py:12`; of the user's code if possible.
        held: a person has paused the trial, so only a person resumes it.
        pruned: the objective has stopped the trial by itself: it has no value.
        estimated_memory_bytes: of a rank, before the attempt; None if there was no estimate.
        memory_limit_bytes: that a rank could have used; None if it is not known.
    """

    trial: int
    attempt: int
    ending: Ending
    metrics: Metrics = field(default_factory=dict)
    failure: str | None = None
    message: str = ""
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    worker_lost: bool = False
    failed_at: float | None = None
    cause: Cause | None = None
    exit_status: int | None = None
    exception: str = ""
    raised_at: str = ""
    held: bool = False
    pruned: bool = False
    estimated_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None


Event = Started | Report | Asked | Outcome


def open_log(assignment: Assignment, rank: int) -> IO[str]:
    """The file that receives the output of a rank, opened to append a line at a time."""
    logs = assignment.files / LOGS
    logs.make()
    name = log_name(assignment.attempt, rank)
    return logs.open(name, "a+", buffering=1, encoding="utf-8", errors="replace")


def log_name(attempt: int, rank: int) -> str:
    """The name of that file, in the folder `LOGS` of the trial."""
    return f"attempt-{attempt}-rank-{rank}.log"


def lost(
    assignment: Assignment,
    message: str,
    *,
    failure: str = "crashed",
    seconds: float = 0.0,
    cause: Cause = Cause.LOST,
    exit_status: int | None = None,
) -> Outcome:
    """The outcome that a dispatcher reports if the worker of an attempt is gone."""
    return Outcome(
        assignment.trial,
        assignment.attempt,
        Ending.FAILED,
        failure=failure,
        message=message,
        seconds=seconds,
        worker_lost=True,
        cause=cause,
        exit_status=exit_status,
    )
