"""How failures enter the acquisition: the probability of success, and how much is demanded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.design import failed_after_design
from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.failures import FailurePosterior
from automl.suggesters.bayes.policy import ALL_RULES, Policy

FIRST_RISK = 0.42  # accepted probability of failure after the initial design
TARGET = 0.04  # share of failures at which the accepted risk stays as it is
MIN_RISK = 0.03
MAX_RISK = 0.7
BARRIER = 1e4  # loss of log value for each unit of missing probability


@dataclass(frozen=True)
class Feasibility:
    """Weighs the gain of a candidate with its probability of success, and demands a least one.

    A search that maximises anything picks candidates with an overestimated probability. So the
    accepted risk follows the trials, see `accepted_risk`.

    Args:
        failures: predicts the probability of success.
        demanded: probability of success, below which the value is far below all others.
    """

    failures: FailurePosterior
    demanded: float

    @classmethod
    def after(
        cls,
        failures: FailurePosterior,
        failed: NDArray[np.bool_],
        policy: Policy = ALL_RULES,
    ) -> Feasibility:
        """The demand after `n` trials, of which some `failed`."""
        return cls(failures, 1.0 - accepted_risk(failed) if policy.failure_budget else 0.0)

    def __call__(self, unit: Array) -> Tensor:
        """The term of `m x d` candidates: log probability of success, far less if too low."""
        log_probability = self.failures.log_probability(unit)
        missing = (self.demanded - log_probability.exp()).clamp(min=0.0)
        return log_probability - BARRIER * missing


def accepted_risk(failed: NDArray[np.bool_]) -> float:
    """The probability of failure to accept after `n` trials.

    Each trial after the initial design adds `TARGET` less its failure (0 or 1) to the logarithm to
    base 2. So the share of failures tends to the target, even if predicted probabilities are wrong:
    the step of adaptive conformal inference (Gibbs and Candes, "Adaptive conformal inference under
    distribution shift", 2021), on a logarithmic scale.
    """
    later = failed_after_design(failed)
    steps = TARGET * len(later) - float(later.sum())
    risk = FIRST_RISK * math.exp2(min(steps, 60.0))  # very many successes must not overflow
    return min(max(risk, MIN_RISK), MAX_RISK)
