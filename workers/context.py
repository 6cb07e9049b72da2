"""What a running trial sees of its surroundings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.errors import TrialFailure

from .device.profiling import profiling
from .protocol import Assignment, Halt, Report


class Halted(Exception):
    """The attempt was asked to end, and what ran is given up: raised by `Context.look`."""


@dataclass
class Context:
    """One rank's view of its attempt: where it is, what it may use, and the way to report.

    Args:
        assignment: what is run.
        send: passes a report on (rank 0 only; other ranks have a function that does nothing).
        halted: says whether and how the attempt was asked to end; cheap, called at every step.
        rank, world_size: of this process in the trial's gang.
        rendezvous: where the ranks meet, for `workers.parallel.mesh.connect`: "file:///path", or "tcp://host:port" of a
            store that listens already; "" for one rank.
        device: "cpu" or "cuda:0", as the worker sees it.
        details: facts for the outcome, filled in while running.
    """

    assignment: Assignment
    send: Callable[[Report], None] = lambda report: None
    halted: Callable[[], Halt | None] = lambda: None
    rank: int = 0
    world_size: int = 1
    rendezvous: str = ""
    device: str = "cpu"
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._sequence = 0
        self.noticed: Halt | None = None  # the request to end that the trial was told of
        self.memory: Any = None  # workers.device.peak_memory.PeakMemory, where it is measured

    @property
    def params(self) -> Mapping[str, Any]:
        """The active parameters."""
        return self.assignment.params

    @property
    def folder(self) -> Path:
        """The trial's own folder; it exists."""
        return Path(self.assignment.folder)

    @property
    def number(self) -> int:
        """The trial's number in its sweep."""
        return self.assignment.trial

    @property
    def seed(self) -> int:
        """Of everything random in this trial; the same in each of its attempts."""
        return self.assignment.seed

    def look(self) -> None:
        """Raise Halted where the attempt was asked to end; `noticed` then says how."""
        halt = self.halted()
        if halt is not None:
            self.noticed = halt
            raise Halted

    def profile(self, num_steps: int = 3) -> AbstractContextManager[Callable[[], None]]:
        """Trace some steps of training with torch's profiler, where `automl publish SWEEP tensorboard` finds them.

        Example:
            >>> with trial.profile() as step_ended:
            ...     for step in range(100):
            ...         train(step)
            ...         step_ended()
        """
        return profiling(num_steps, self.folder, self.rank)

    def report(self, step: int, **metrics: float) -> bool:
        """Send metrics at a step; False when the trial should return soon.

        Raises:
            TrialFailure: a metric is no number ("missing_metric").
        """
        return self.emit(step, metrics, time.monotonic() - self._begun)

    def emit(self, step: int, metrics: Mapping[str, float], seconds: float) -> bool:
        """As `report`, with the training seconds of this attempt given by a trainer that keeps its own clock."""
        numbers = {}
        for key, value in metrics.items():
            try:
                numbers[key] = number_of(value)
            except (TypeError, ValueError) as error:
                raise TrialFailure(
                    "missing_metric", f"metric {key!r} must be a number, got {value!r}"
                ) from error
        a = self.assignment
        if not -(2**63) <= step < 2**63:
            raise TrialFailure("crashed", f"a step must fit 64 bits, got {step!r:.60}")
        self.send(
            Report(
                a.trial, a.attempt, self._sequence, int(step), numbers, a.previous_seconds + seconds
            )
        )
        self._sequence += 1
        self.noticed = self.halted()
        return self.noticed is None


def number_of(value: Any) -> float:
    """A metric as a float, a tensor without a word about its gradient; raises TypeError or ValueError."""
    return float(value.detach() if hasattr(value, "detach") else value)
