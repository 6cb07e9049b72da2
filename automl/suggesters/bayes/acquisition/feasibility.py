"""How failures enter the acquisition: the probability of success, and how much is demanded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.failures import FailurePosterior
from automl.suggesters.bayes.policy import ALL_RULES, Policy

LEAST_START = 5  # failures of this many first trials are free
START_SUCCESSES = 2  # and so are failures before this many successes
FREE_FAILURES = 0.5  # later failures within the budget
FREE_SHARE = 0.04  # and this share of the later trials
RISK = 0.3  # accepted probability of failure at the budget, halved by each failure beyond it
LEAST_DEMANDED = 0.3
MOST_DEMANDED = 0.97
BARRIER = 1e4  # loss of log value for each unit of missing probability
PRICE = 1.0  # of a failure at the budget, in standardised losses; doubled by each one beyond it
UNPAYABLE = 1e30
LEAST_VALUE = -200.0  # log value for which no failure is risked
QUANTILE = 0.85  # of the probabilities that leave-one-out predictions give successes


@dataclass(frozen=True)
class Feasibility:
    """Weighs the gain of a candidate with its probability of success.

    A search that maximises anything picks candidates with an overestimated probability. So the
    demanded probability follows the trials, like the step of an integral controller: it rises with
    each failure beyond a budget, and falls as trials succeed.

    Args:
        failures: predicts the probability of success.
        demanded: probability of success below which a candidate needs a large gain.
        price: of a failure, in standardised losses.
    """

    failures: FailurePosterior
    demanded: float
    price: float

    @classmethod
    def after(
        cls,
        failures: FailurePosterior,
        failed: NDArray[np.bool_],
        best: Array,
        policy: Policy = ALL_RULES,
    ) -> Feasibility:
        """The demand and the price after `n` trials.

        Args:
            failures: predicts the probability of success.
            failed: `n`, which trials failed.
            best: `b x d`, the best configurations; no more is demanded than they promise.
            policy: which rules are on.
        """
        overrun = _overrun(failed)
        # An exact edge of success leaves nothing to pay for; labels blur it.
        payable = policy.failure_price and not failures.exact
        demanded = demanded_after(overrun) if policy.failure_budget else 0.0
        if policy.demand_as_successes:
            demanded = min(demanded, failures.of_successes(QUANTILE))
        if policy.demand_as_best and len(best) and failures.parts:
            demanded = min(demanded, float(failures.log_probability(best).exp().max()))
        return cls(failures, demanded, price_after(overrun) if payable else UNPAYABLE)

    def weighed(self, log_gain: Tensor, unit: Array) -> Tensor:
        """Log of the value of `m` candidates.

        It is the gain times the probability of success. If that probability is below the demanded
        one, the price of the difference is subtracted; the value is far below all others if the
        price exceeds it.

        Args:
            log_gain: `m`, log of the expected gain.
            unit: `m x d`, the candidates.
        """
        log_probability = self.failures.log_probability(unit)
        value = log_gain + log_probability
        missing = (self.demanded - log_probability.exp()).clamp(min=0.0)
        spent = self.price * missing / value.clamp(min=LEAST_VALUE).exp()
        paid = torch.where(spent < 1.0, value + torch.log1p(-spent.clamp(max=1.0)), -math.inf)
        return torch.maximum(value - BARRIER * missing, paid)


def _overrun(failed: NDArray[np.bool_]) -> float:
    """How many more trials have failed than the budget allows; those of the start are free."""
    succeeded = np.flatnonzero(~failed)
    start = len(failed)
    if len(succeeded) >= START_SUCCESSES:
        start = int(succeeded[START_SUCCESSES - 1]) + 1
    later = failed[max(LEAST_START, start) :]
    return float(later.sum()) - FREE_FAILURES - FREE_SHARE * len(later)


def demanded_after(overrun: float) -> float:
    """The probability of success to demand after this many failures beyond the budget."""
    risk = RISK * math.exp2(min(-overrun, 60.0))  # ten thousand successes must not overflow
    return min(max(1.0 - risk, LEAST_DEMANDED), MOST_DEMANDED)


def price_after(overrun: float) -> float:
    """The price of a failure after this many failures beyond the budget, in standardised losses."""
    return PRICE * math.exp2(max(min(overrun, 60.0), -10.0))
