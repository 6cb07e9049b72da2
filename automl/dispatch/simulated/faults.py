"""Faults to inject into a simulation: slow starts, stragglers, crashes and lost nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.protocol import Assignment


class Fault:
    """The base class: no fault. Subclasses override a method.

    `rng` depends on the attempt and the seed only, so that every simulation is the same.
    """

    def delay(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Seconds before the attempt begins to work, such as the start of a process."""
        return 0.0

    def slowness(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Factor on the duration of the attempt."""
        return 1.0

    def lifetime(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Seconds after which the attempt's worker dies."""
        return math.inf

    def outages(self, num_slots: int) -> Sequence[Outage]:
        """Periods without some of the slots."""
        return ()


@dataclass(frozen=True)
class Outage:
    """Slots `first` to `last` are lost, with their attempts, from `begin` to `end` (seconds)."""

    begin: float
    end: float
    first: int
    last: int


@dataclass(frozen=True)
class Startup(Fault):
    """Every attempt waits for some seconds before it works."""

    seconds: float

    def delay(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """The same for all attempts."""
        return self.seconds


@dataclass(frozen=True)
class Crashes(Fault):
    """Workers die after exponentially distributed times with mean `mean_seconds`."""

    mean_seconds: float

    def lifetime(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Exponentially distributed, for each attempt anew."""
        return float(rng.exponential(self.mean_seconds))


@dataclass(frozen=True)
class Stragglers(Fault):
    """A share of the attempts takes `factor` times longer than the others."""

    share: float
    factor: float

    def slowness(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Either 1 or `factor`."""
        return self.factor if rng.random() < self.share else 1.0


@dataclass(frozen=True)
class NodeLoss(Fault):
    """A node with the `num_slots` slots from `first` is lost at `at` and back after `seconds`."""

    at: float
    first: int
    num_slots: int
    seconds: float = math.inf

    def outages(self, num_slots: int) -> Sequence[Outage]:
        """One outage."""
        last = min(self.first + self.num_slots, num_slots) - 1
        return (Outage(self.at, self.at + self.seconds, self.first, last),)
