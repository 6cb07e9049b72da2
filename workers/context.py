"""The context of a running trial: its parameters, its folder, and the way to report."""

import os
import reprlib
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import TrialFailure

from .device.profiling import profiling
from .device.warmup import Warmup
from .files.folder import Folder
from .protocol import Assignment, Report, StopRequest

MAX_METRICS: Final = 10_000  # of a report or result
MAX_NAME: Final = 200  # characters of the name of a metric or of an exception


class Stopped(Exception):
    """The attempt was asked to stop and gives up its current work; see `Context.check_stop`."""


@dataclass
class Context:
    """One rank's view of its attempt.

    Args:
        assignment: the attempt.
        send: sends a report (rank 0 only; other ranks have a function that does nothing).
        stop_requested: polls for a stop request; cheap, called at every step.
        rank, world_size: of this process in the trial's gang.
        rendezvous: address at which the ranks meet, for `workers.parallel.mesh.connect`:
            "file:///path", or "tcp://host:port" of a store that already listens; "" for one rank.
        device: "cpu" or "cuda:0", as the worker sees it.
        details: facts for the outcome, filled in while running.
    """

    assignment: Assignment
    send: Callable[[Report], None] = lambda report: None
    stop_requested: Callable[[], StopRequest | None] = lambda: None
    rank: int = 0
    world_size: int = 1
    rendezvous: str = ""
    device: str = "cpu"
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._sequence = 0
        self._process = os.getpid()
        self._lock = threading.Lock()  # an objective may report from several threads
        self._over = False
        self.stop: StopRequest | None = None  # the request that ends this attempt
        self.memory: Any = None  # workers.device.peak_memory.PeakMemory, while `workers.run` runs
        self.warmup = Warmup()

    @property
    def params(self) -> Mapping[str, Any]:
        """The active parameters."""
        return self.assignment.params

    @property
    def folder(self) -> Path:
        """The trial's folder; it exists."""
        return Path(self.assignment.folder)

    @property
    def files(self) -> Folder:
        """The same folder, to be opened without following links."""
        return self.assignment.files

    @property
    def number(self) -> int:
        """The trial's number in its sweep."""
        return self.assignment.trial

    @property
    def seed(self) -> int:
        """Seed of everything random in this trial; the same in each of its attempts."""
        return self.assignment.seed

    def accept_stop(self, request: StopRequest | None) -> None:
        """Let the attempt end by this request; None if it ends by itself after all."""
        self.stop = request

    def check_stop(self) -> None:
        """Raise Stopped if the attempt was asked to stop; `stop` is then the request."""
        if (request := self.stop_requested()) is not None:
            self.stop = request
            raise Stopped

    def profile(self, num_steps: int = 3) -> AbstractContextManager[Callable[[], None]]:
        """Trace some training steps with torch's profiler, for `automl publish SWEEP tensorboard`.

        Example:
            >>> with trial.profile() as step_ended:
            ...     for step in range(100):
            ...         train(step)
            ...         step_ended()
        """
        return profiling(num_steps, self.files, self.rank)

    def report(self, step: int, **metrics: float) -> bool:
        """Send metrics at a step; returns False if the trial was asked to stop and should return.

        Raises:
            TrialFailure: a metric is not a number ("missing_metric").
        """
        return self.emit(step, metrics, time.monotonic() - self._begun - self.warmup.seconds)

    def close(self) -> None:
        """The attempt is over: reports of threads that it has left behind are ignored."""
        with self._lock:
            self._over = True

    def emit(self, step: int, metrics: Mapping[str, float], seconds: float) -> bool:
        """Like `report`, with the training seconds of this attempt, for a trainer with a clock."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a process that the objective has forked cannot report: "
                "report in the process that began the trial"
            )
        numbers = numbers_of(metrics)
        a = self.assignment
        if not -(2**63) <= step < 2**63:
            raise TrialFailure("crashed", f"a step must fit 64 bits, got {reprlib.repr(step)}")
        with self._lock:
            if self._over:
                return False
            report = Report(
                a.trial,
                a.attempt,
                self._sequence,
                int(step),
                numbers,
                a.previous_seconds + seconds,
            )
            self._sequence += 1
            self.send(report)
        self.stop = self.stop_requested()
        return self.stop is None


def number_of(value: Any) -> float:
    """A number or tensor as a float.

    Raises:
        TypeError, ValueError: it is neither; a text is no number, even if it reads like one.
    """
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"a text is no number: {reprlib.repr(value)}")
    return float(value.detach() if hasattr(value, "detach") else value)


def numbers_of(metrics: Mapping[Any, Any]) -> dict[str, float]:
    """Metrics with each value as a float.

    Raises:
        TrialFailure: a value is not a number, or there are too many or too long names
            ("missing_metric").
    """
    if len(metrics) > MAX_METRICS:
        raise TrialFailure(
            "missing_metric", f"at most {MAX_METRICS:,} metrics are kept, got {len(metrics):,}"
        )
    numbers = {}
    for key, value in metrics.items():
        name = str(key)
        if len(name) > MAX_NAME:
            raise TrialFailure(
                "missing_metric",
                f"a metric's name has at most {MAX_NAME} characters, got {len(name):,}",
            )
        try:
            numbers[name] = number_of(value)
        except Exception as error:  # of any kind, from a type of the objective
            raise TrialFailure(
                "missing_metric", f"metric {name!r} must be a number, got {shown(value)}"
            ) from error
    return numbers


def shown(value: Any) -> str:
    """A value of any kind in few characters."""
    try:
        size = f" of {len(value):,}" if hasattr(value, "__len__") else ""
        return f"{type(value).__name__}{size}: {reprlib.repr(value)}"
    except BaseException:  # its own methods may raise anything
        return type(value).__name__
