"""What is believed of a space at one moment: goals, constraints and failures, and what a candidate is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .acquisition import best_predicted, log_expected_improvement
from .data import Array
from .external import External
from .feasibility import Feasibility
from .gp import Ensemble
from .kernel import Features
from .pareto import log_hypervolume_improvement
from .transforms import Transform

SKETCHED = 3  # hyperparameter vectors of a first look
NOISY = 0.1  # of the variance of the standardised losses


@dataclass(frozen=True)
class Belief:
    """The surrogate of one metric.

    Args:
        encoder: of `m x d` configurations, by the parameters that reach the metric.
        model: of the transformed values; transform: that was applied.
        rows: which trials the model is conditioned on.
    """

    encoder: Callable[[Array], Features]
    model: Ensemble | External
    transform: Transform | None
    rows: NDArray[np.intp]

    def with_pending(self, unit: Array) -> Belief:
        """Condition further on pending configurations, at the values that are predicted for them."""
        if not len(unit):
            return self
        return Belief(self.encoder, self.model.believe(self.encoder(unit)), self.transform, self.rows)

    def sketch(self) -> Belief:
        """With few of the hyperparameter vectors."""
        return replace(self, model=self.model.part(SKETCHED)) if isinstance(self.model, Ensemble) else self


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
        return replace(self, goals=goals, limits=[limit.with_pending(unit) for limit in self.limits])

    def sketch(self) -> Beliefs:
        """The same, roughly: few of the hyperparameter vectors, to tell which candidates are worth a closer look."""
        goals, limits = ([belief.sketch() for belief in some] for some in (self.goals, self.limits))
        return replace(self, goals=goals, limits=limits, feasibility=self.feasibility.sketch())

    @property
    def noisy(self) -> bool:
        """Whether noise makes up more than a small part of the variance of the first goal."""
        model = self.goals[0].model
        return isinstance(model, Ensemble) and bool(model.hyper.noise.mean() > NOISY)

    def score(self, unit: Array, *, agreed: bool = False) -> Tensor:
        """Log of the expected gain of `m` candidates, times the probability that it counts.

        Args:
            agreed: where there is one goal, whether to take the gain that all of the ensemble expects.
        """
        total = self.feasibility.log_weight(unit)
        for limit in self.limits:
            mean, variance = limit.model.predict(limit.encoder(unit))
            total = total + torch.special.log_ndtr(-mean / variance.sqrt()).exp().mean(0).clamp(min=1e-300).log()
        return total + self._gain(unit, agreed)

    def _gain(self, unit: Array, agreed: bool) -> Tensor:
        first = self.goals[0]
        if not self.holds.any():
            return torch.zeros(len(unit), dtype=torch.float64)
        if len(self.goals) > 1:
            return log_hypervolume_improvement(self.goals, self.holds, unit)
        allowed = torch.from_numpy(self.holds[first.rows])
        if not bool(allowed.any()):
            allowed = torch.ones_like(allowed)
        features, index = first.encoder(unit), best_predicted(first.model, allowed)
        return log_expected_improvement(first.model, features, index, agreed)
