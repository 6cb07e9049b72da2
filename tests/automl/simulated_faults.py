"""Faults of simulated workers: slow starts, stragglers and crashes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from automl.dispatch.simulated.dispatcher import Fault
from workers.protocol import Assignment


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
