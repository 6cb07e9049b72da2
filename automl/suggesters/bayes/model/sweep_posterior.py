"""What is believed of a space at one moment: goals, constraints and failures, and what a candidate is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.acquisition.feasibility import Feasibility
from automl.suggesters.bayes.acquisition.hypervolume import log_hypervolume_improvement
from automl.suggesters.bayes.acquisition.logei import best_predicted, log_expected_improvement

from .data import Array
from .gp import Ensemble
from .metric_posterior import Belief


@dataclass(frozen=True)
class Beliefs:
    """Everything that the acquisition needs.

    Args:
        goals: one belief a goal; limits: one a constraint, of how far its bound is exceeded.
        feasibility: of the failures.
        holds: `n`, which of all trials satisfy every constraint.
    """

    goals: Sequence[Belief]
    limits: Sequence[Belief]
    feasibility: Feasibility
    holds: NDArray[np.bool_]

    def with_pending(self, unit: Array) -> Beliefs:
        """Taking pending configurations into account."""
        goals = [goal.with_pending(unit) for goal in self.goals]
        return replace(
            self, goals=goals, limits=[limit.with_pending(unit) for limit in self.limits]
        )

    def sketch(self) -> Beliefs:
        """The same, roughly: few of the hyperparameter vectors, to tell which candidates are worth a closer look."""
        goals, limits = ([belief.sketch() for belief in some] for some in (self.goals, self.limits))
        return replace(self, goals=goals, limits=limits, feasibility=self.feasibility.sketch())

    def accepting(self, probability: float) -> Beliefs:
        """The same where no more than that probability of success is demanded."""
        return replace(self, feasibility=self.feasibility.accepting(probability))

    def smoothed(self, count: int) -> Array | None:
        """What the surrogate makes of the loss of each of `count` trials, transformed, infinite where it was not
        conditioned on; None of several goals, or of a surrogate of another kind."""
        first = self.goals[0]
        if len(self.goals) > 1 or not isinstance(first.model, Ensemble):
            return None
        found = np.full(count, np.inf)
        found[first.rows] = first.model.mean(
            first.model.features[slice(0, len(first.rows))]
        ).numpy()
        return found

    def score(self, unit: Array) -> Tensor:
        """Log of the expected gain of `m` candidates, times the probability that it counts."""
        total = self._gain(unit)
        for limit in self.limits:
            mean, variance = limit.model.predict(limit.encoder(unit))
            total = (
                total
                + torch.special.log_ndtr(-mean / variance.sqrt())
                .exp()
                .mean(0)
                .clamp(min=1e-300)
                .log()
            )
        return self.feasibility.weighed(total, unit)

    def _gain(self, unit: Array) -> Tensor:
        first = self.goals[0]
        if not self.holds.any():
            return torch.zeros(len(unit), dtype=torch.float64)
        if len(self.goals) > 1:
            return log_hypervolume_improvement(self.goals, self.holds, unit)
        return log_expected_improvement(first.model, first.encoder(unit), self._incumbents)

    @cached_property
    def _incumbents(self) -> Tensor:
        """What each hyperparameter vector takes for the best."""
        first = self.goals[0]
        allowed = torch.from_numpy(self.holds[first.rows])
        if not bool(allowed.any()):
            allowed = torch.ones_like(allowed)
        return best_predicted(first.model, allowed)
