"""The posterior of a sweep: of all of its goals, constraints and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .data import Array
from .failures import FailurePosterior
from .gp import Ensemble
from .kernel import Features
from .transforms import Transform


@dataclass(frozen=True)
class MetricPosterior:
    """The surrogate of one metric.

    Args:
        encoder: of `m x d` configurations, with the parameters that affect the metric.
        model: of the transformed values.
        transform: that was applied; None for a constraint.
        rows: the trials that the model is conditioned on.
    """

    encoder: Callable[[Array], Features]
    model: Ensemble
    transform: Transform | None
    rows: NDArray[np.intp]

    def with_pending(self, unit: Array) -> MetricPosterior:
        """Condition on pending configurations too, at their predicted values."""
        if not len(unit):
            return self
        return replace(self, model=self.model.fantasize(self.encoder(unit)))

    def sketch(self) -> MetricPosterior:
        """A cheap version with few hyperparameter vectors."""
        return replace(self, model=self.model.sketch())


@dataclass(frozen=True)
class SweepPosterior:
    """All surrogates of a sweep, given its trials.

    Args:
        goals: one for each goal.
        constraints: one for each constraint with data, of how far its bound is exceeded.
        failures: the probability of success.
        feasible: `n`, which trials satisfy every constraint.
    """

    goals: Sequence[MetricPosterior]
    constraints: Sequence[MetricPosterior]
    failures: FailurePosterior
    feasible: NDArray[np.bool_]

    def with_pending(self, unit: Array) -> SweepPosterior:
        """Condition on pending configurations too, at their predicted values."""
        return replace(
            self,
            goals=[goal.with_pending(unit) for goal in self.goals],
            constraints=[constraint.with_pending(unit) for constraint in self.constraints],
        )

    def sketch(self) -> SweepPosterior:
        """A cheap version with few hyperparameter vectors, to pre-select candidates."""
        return SweepPosterior(
            [goal.sketch() for goal in self.goals],
            [constraint.sketch() for constraint in self.constraints],
            self.failures.sketch(),
            self.feasible,
        )

    def smoothed(self, count: int) -> Array | None:
        """The surrogate's mean of the transformed loss of each of `count` trials.

        Returns:
            `n`, infinite for trials without a loss; None for several goals.
        """
        first = self.goals[0]
        if len(self.goals) > 1:
            return None
        found = np.full(count, np.inf)
        features = first.model.features[slice(0, len(first.rows))]
        found[first.rows] = first.model.mean(features).numpy()
        return found
