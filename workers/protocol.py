"""What the controller and the workers tell each other: frozen, JSON-able, free of torch and Ray.

`Assignment` goes to a worker; `Started`, any number of `Report`s and exactly one `Outcome` come back for each
(trial, attempt). Reports are keyed by (trial, attempt, sequence), so a duplicate is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

Value = bool | int | float | str
Params = Mapping[str, Value]
Metrics = Mapping[str, float]
LEAVING = "worker_leaves"  # in an outcome's details: this worker must get no further attempt


@dataclass(frozen=True)
class Metric:
    """A number that a workload reports.

    Args:
        name: its key in a report.
        direction: which values are better; None for a number of which neither is, such as a count.
        aspect: "quality", "speed", "memory", or "quality and speed" (a time to reach a quality).
    """

    name: str
    direction: Literal["minimize", "maximize"] | None = None
    aspect: Literal["quality", "speed", "memory", "quality and speed"] = "quality"

    @property
    def aspects(self) -> frozenset[str]:
        """The aspect as a set, as `affects` of a parameter has it."""
        return frozenset(self.aspect.split(" and "))


class Ending(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # asked to stop early; its metrics count
    PAUSED = "paused"  # asked to pause; a checkpoint was written
    FAILED = "failed"  # `failure` says why
    INTERRUPTED = "interrupted"  # the controller went away or was told to leave


class Halt(StrEnum):
    """Why a worker is asked to end its attempt before its time."""

    STOP = "stop"
    PAUSE = "pause"
    INTERRUPT = "interrupt"


@dataclass(frozen=True)
class Limits:
    """When an attempt must end by itself.

    Args:
        train_seconds: seconds of training after which a workload evaluates, reports and returns (`within` of a
            goal); None for no such limit. It is time spent training, summed over attempts.
        timeout_seconds: wall-clock seconds without any step or report of any rank after which the attempt counts as
            hung; None for never.
        memory_bytes: peak memory a rank may use, None for the device's.
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
        workload: name of the workload; None where an objective of the user's own is run.
        data: the `data` section of the configuration; fixed: its `fixed` section.
        seed: of everything random in the attempt; the same for every attempt of a trial.
        folder: absolute path of a folder of the trial's own, for checkpoints and logs.
        num_ranks: processes that the trial takes, one slot each.
        threads: CPU threads a rank; gpus: GPUs a rank, a fraction where it is shared.
        resume: whether the newest valid checkpoint in `folder` is continued from.
        previous_seconds: training seconds that earlier attempts spent.
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
    threads: int = 1
    gpus: float = 0.0
    resume: bool = False
    previous_seconds: float = 0.0
    limits: Limits = field(default_factory=Limits)

    @property
    def label(self) -> str:
        """Sweep, trial and configuration in a line, as the Ray dashboard and the logs show it."""
        settings = " ".join(
            f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.params.items()
        )
        return f"{self.sweep}/{self.trial}.{self.attempt} {settings}"


@dataclass(frozen=True)
class Started:
    """A worker has taken up an attempt; `worker` says which (host, pid)."""

    trial: int
    attempt: int
    worker: str = ""


@dataclass(frozen=True)
class Report:
    """Metrics at a step.

    Args:
        sequence: from 0 within an attempt.
        step: what the workload counts (updates, epochs), not decreasing within an attempt.
        metrics: every key as it was reported, float64.
        seconds: training seconds since the trial began, earlier attempts counted in.
    """

    trial: int
    attempt: int
    sequence: int
    step: int
    metrics: Metrics
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Args:
        ending: see `Ending`.
        metrics: what the workload or objective returned.
        failure: one of `search_spaces.errors.FAILURE_KINDS` where `ending` is FAILED, else None.
        message: what happened, for a person.
        seconds: wall-clock seconds of this attempt.
        peak_memory_bytes: the largest of the ranks, None where it was not measured.
        details: further facts for the report (memory by module, skipped steps); JSON.
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


Event = Started | Report | Outcome


@dataclass(frozen=True)
class Pulse:
    """A rank's sign of life: seconds since its last step or report, and how often it has looked for orders."""

    quiet: float
    steps: int


def log_of(assignment: Assignment, rank: int) -> Path:
    """The file that what a rank prints goes to."""
    return Path(assignment.folder) / "logs" / f"attempt-{assignment.attempt}-rank-{rank}.log"


def lost(
    assignment: Assignment, message: str, *, failure: str = "crashed", seconds: float = 0.0
) -> Outcome:
    """The outcome of an attempt whose worker is gone, as its dispatcher reports it: nobody knows who was to blame."""
    return Outcome(
        assignment.trial,
        assignment.attempt,
        Ending.FAILED,
        failure=failure,
        message=message,
        seconds=seconds,
        details={"worker_lost": True},
    )


def was_lost(outcome: Outcome) -> bool:
    """Whether an attempt ended with its worker, and not by anything that its own code raised or returned."""
    return outcome.details.get("worker_lost") is True
