"""The acquisition function: the logarithm of the value of a candidate, a sum of terms.

      log expected improvement, or hypervolume improvement    (logei, hypervolume)
    + log probability that each constraint holds              (here)
    + log probability of success, far less if it is too low   (feasibility)
    - power * log seconds, if time is limited                 (cost)
    + weight * log density of the user's prior                (user_prior)

Every path of the suggester takes this sum: one suggestion, several, batches, forced exploration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.posterior import SweepPosterior
from automl.suggesters.bayes.policy import ALL_RULES, Policy

from .feasibility import Feasibility
from .hypervolume import log_hypervolume_improvement
from .logei import POWER, best_predicted, log_expected_improvement

Term = Callable[[Array], Tensor]


@dataclass(frozen=True)
class Acquisition:
    """Log value of candidates.

    Args:
        posterior: of the sweep.
        feasibility: the probability of success, and how much of it is demanded.
        terms: further terms by name: `cost` and the user's `prior`.
    """

    posterior: SweepPosterior
    feasibility: Feasibility
    terms: Mapping[str, Term] = field(default_factory=dict)
    policy: Policy = ALL_RULES

    def __call__(self, unit: Array) -> Tensor:
        """Log value of `m x d` candidates, `m`."""
        return torch.stack([*self.parts(unit).values()]).sum(0)

    def parts(self, unit: Array) -> dict[str, Tensor]:
        """The terms of `m x d` candidates, each `m`; they add up to the log value.

        They are `improvement`, `constraints` and `success`, then the further terms by name.
        """
        return {
            "improvement": self._log_improvement(unit),
            "constraints": self._log_allowed(unit),
            "success": self.feasibility(unit),
            **{name: term(unit) for name, term in self.terms.items()},
        }

    def with_pending(self, unit: Array) -> Acquisition:
        """The value beside pending configurations (`w x d`)."""
        return replace(self, posterior=self.posterior.with_pending(unit))

    def sketch(self) -> Acquisition:
        """A cheap version with few hyperparameter vectors, to pre-select candidates."""
        posterior = self.posterior.sketch()
        feasibility = replace(self.feasibility, failures=posterior.failures)
        return replace(self, posterior=posterior, feasibility=feasibility)

    def accepting(self, probability: float) -> Acquisition:
        """A version that demands at most this probability of success."""
        demanded = min(self.feasibility.demanded, probability)
        return replace(self, feasibility=replace(self.feasibility, demanded=demanded))

    def _log_allowed(self, unit: Array) -> Tensor:
        """The log probability that every constraint holds."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for constraint in self.posterior.constraints:
            mean, variance = constraint.model.predict(constraint.encoder(unit))
            holds = torch.special.log_ndtr(-mean / variance.sqrt()).exp().mean(0)
            total += holds.clamp(min=1e-300).log()
        return total

    def _log_improvement(self, unit: Array) -> Tensor:
        posterior, first = self.posterior, self.posterior.goals[0]
        if not posterior.feasible.any():
            return torch.zeros(len(unit), dtype=torch.float64)
        if len(posterior.goals) > 1:
            return log_hypervolume_improvement(
                posterior.goals, posterior.feasible, unit, self.policy.distant_reference
            )
        power = POWER if self.policy.power_mean else 1.0
        return log_expected_improvement(first.model, first.encoder(unit), self._best, power)

    @cached_property
    def _best(self) -> Tensor:
        """The trial that each hyperparameter vector predicts to be the best."""
        first = self.posterior.goals[0]
        allowed = torch.from_numpy(self.posterior.feasible[first.rows])
        if not bool(allowed.any()):
            allowed = torch.ones_like(allowed)
        return best_predicted(first.model, allowed)
