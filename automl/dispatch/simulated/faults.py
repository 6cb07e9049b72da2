"""What can go wrong on a virtual clock, as ordinary classes that `automl.simulate` takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.protocol import Assignment


class Fault:
    """Nothing goes wrong; subclasses say what does. `rng` is the attempt's own, the same in every simulation."""

    def delay(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Seconds that pass before the attempt begins to work, such as for starting a process."""
        return 0.0

    def slowness(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """By how much every second of the attempt is longer."""
        return 1.0

    def lifetime(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Seconds after which the attempt's worker dies."""
        return math.inf

    def outages(self, num_slots: int) -> Sequence[Outage]:
        """When slots are gone."""
        return ()


@dataclass(frozen=True)
class Outage:
    """Slots `first` to `last` are gone from `begin` until `end` (virtual seconds), and what runs there is lost."""

    begin: float
    end: float
    first: int
    last: int


@dataclass(frozen=True)
class Startup(Fault):
    """Every attempt waits so many seconds before it works."""

    seconds: float

    def delay(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """The same for all."""
        return self.seconds


@dataclass(frozen=True)
class Crashes(Fault):
    """Workers die after exponentially distributed times, on average after `mean_seconds` of an attempt."""

    mean_seconds: float

    def lifetime(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Without memory."""
        return float(rng.exponential(self.mean_seconds))


@dataclass(frozen=True)
class Stragglers(Fault):
    """A share of the attempts is `factor` times slower than the others."""

    share: float
    factor: float

    def slowness(self, assignment: Assignment, rng: np.random.Generator) -> float:
        """Either 1 or `factor`."""
        return self.factor if rng.random() < self.share else 1.0


@dataclass(frozen=True)
class NodeLoss(Fault):
    """A node of `num_slots` slots, from slot `first` on, is lost at `at` and is back after `seconds`."""

    at: float
    first: int
    num_slots: int
    seconds: float = math.inf

    def outages(self, num_slots: int) -> Sequence[Outage]:
        """One."""
        return (
            Outage(
                self.at,
                self.at + self.seconds,
                self.first,
                min(self.first + self.num_slots, num_slots) - 1,
            ),
        )
