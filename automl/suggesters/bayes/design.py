"""The initial design: the first configurations, before there is a surrogate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .candidates import SAME, CandidateSampler
from .model.data import Array, TrialData

if TYPE_CHECKING:
    from .model.failures import FailurePosterior

NUM_DESIGN = 5  # trials of the initial design; each range is divided into as many parts
MIN_SUCCESSES = 2  # before which it goes on
NUM_TRANSFERRED = 3  # trials of the design if there are earlier sweeps: their best ones
POOL = 128
CERTAINTY = 8.0  # weight of the log probability of success against coverage


def failed_after_design(failed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the trials after the initial design failed; empty as long as it goes on.

    Args:
        failed: `n`, which trials failed.
    """
    succeeded = np.flatnonzero(~failed)
    if len(succeeded) < MIN_SUCCESSES:
        return failed[:0]
    return failed[max(NUM_DESIGN, int(succeeded[MIN_SUCCESSES - 1]) + 1) :]


class InitialDesign:
    """Sequential Latin hypercube: each point takes values that the points before it left out.

    Conditional parameters count only if they are active. A likely success counts as well, and so
    does the user's prior.

    If there are earlier sweeps, it is their best configurations (Feurer et al., "Initializing
    Bayesian hyperparameter optimization via meta-learning", 2015).

    Args:
        sampler: of candidates.
        earlier: `m x d`, configurations of earlier sweeps, the best first.
        inner: whether it leaves out the outer fifth of a range at either end, where good values
            are rare.
    """

    def __init__(self, sampler: CandidateSampler, earlier: Array, *, inner: bool = True) -> None:
        self.sampler = sampler
        self.earlier = earlier
        self.margin = 1 / NUM_DESIGN if inner else 0.0
        self.size = NUM_TRANSFERRED if len(earlier) else NUM_DESIGN

    def goes_on(self, data: TrialData, num_pending: int) -> bool:
        """Whether the next configuration belongs to the design."""
        num_successes = int((~data.failed).sum())
        return len(data) + num_pending < self.size or num_successes < MIN_SUCCESSES

    def pool(
        self,
        data: TrialData,
        pending: Array,
        failures: FailurePosterior | None,
        rng: np.random.Generator,
    ) -> Array:
        """Candidates, the best first.

        Args:
            data: of the trials so far.
            pending: `w x d`, pending configurations.
            failures: predicts the probability of success; None if no trial has failed.
        """
        known = np.concatenate([data.unit, pending])
        if len(known) < len(self.earlier[: self.size]):
            return self.earlier
        points = self.sampler.everywhere(rng, POOL, prior_share=1.0, margin=self.margin)
        if not len(known):
            return points
        certainty = np.zeros(len(points))
        if failures is not None:
            certainty = CERTAINTY * failures.log_probability(points).numpy()
        repeated = self.overlap(points, known) - self.sampler.prior.log_density(points)
        return points[np.argsort(-(certainty - repeated), kind="stable")]

    def overlap(self, points: Array, known: Array) -> Array:
        """How often the values of each point were tried before, `m`, over its active parameters.

        It is at most that of `NUM_DESIGN` trials, so that success continues to count.
        """
        total = np.zeros(len(points))
        for column, unordered in enumerate(self.sampler.unordered):
            apart = np.abs(points[:, None, column] - known[None, :, column])
            same = apart < SAME if unordered else np.clip(1.0 - NUM_DESIGN * apart, 0.0, 1.0)
            total += np.where(np.isnan(apart), 0.0, same).sum(1)
        return total * min(1.0, NUM_DESIGN / max(len(known), 1))
