"""The first configurations, before there is a surrogate: a middle one, then a design that covers every parameter."""

from __future__ import annotations

import numpy as np

from search_spaces.errors import SpaceError
from workers.protocol import Params

from .acquisition.feasibility import Feasibility
from .candidates import Lattice
from .model.data import Array

POOL = 128
REACH = (0.05, 0.4)  # of steps away from what succeeded, where something has failed
CLOSER = 0.8  # factor of the largest step by each failure
CERTAINTY = 8.0  # how much the logarithm of the probability of success weighs against coverage


class Start:
    """Sequential Latin hypercube: each point takes the values that the points before it have left out.

    Conditional parameters count only where they are active. Once trials fail, half of the candidates are near those
    that succeeded, the nearer the more have failed, and all of them where most have; likely success counts as well.

    Args:
        lattice: of the space; size: number of points it is meant for, which is how finely each range is divided.
    """

    def __init__(self, lattice: Lattice, size: int) -> None:
        self.lattice, self.size = lattice, size

    def middle(self, rng: np.random.Generator) -> Params | None:
        """Every parameter at its default or in the middle of its range; None where no such configuration is legal."""
        try:
            return self.lattice.space.repair({}, rng)
        except SpaceError:
            return None

    def pool(
        self,
        known: Array,
        succeeded: Array,
        failures: int,
        feasibility: Feasibility,
        rng: np.random.Generator,
    ) -> Array:
        """Candidates, the best first, given the configurations that are known, those of them that succeeded, and how
        many failed."""
        points = self.lattice.everywhere(rng, POOL)
        if not len(known):
            return points
        if feasibility.parts and len(succeeded):
            near = self.lattice.near(
                rng, succeeded, POOL, (REACH[0], max(REACH[1] * CLOSER**failures, 2 * REACH[0]))
            )
            points = near if failures > len(succeeded) else np.concatenate([points, near])
        value = CERTAINTY * feasibility.log_probability(points).numpy() - self.overlap(
            points, known
        )
        return points[np.argsort(-value, kind="stable")]

    def overlap(self, points: Array, known: Array) -> Array:
        """`m`, how often a value of the point has been tried before, over its active parameters; at most as if by
        the trials of a start, so that success goes on to count."""
        total = np.zeros(len(points))
        for column, unordered in enumerate(self.lattice.unordered):
            apart = np.abs(points[:, None, column] - known[None, :, column])
            same = apart < 1e-9 if unordered else np.clip(1.0 - self.size * apart, 0.0, 1.0)
            total += np.where(np.isnan(apart), 0.0, same).sum(1)
        return total * min(1.0, self.size / max(len(known), 1))
