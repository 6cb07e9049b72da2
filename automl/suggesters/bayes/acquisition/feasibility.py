"""How likely a configuration is to succeed, learned from what failed: one classifier a kind of failure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.model.data import Array
from automl.suggesters.bayes.model.features import Encoder
from automl.suggesters.bayes.model.fit import Fitter, settled
from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.latent_threshold import Bound
from automl.suggesters.bayes.model.log_gp import Quantity

UNGUIDED, SUCCESSES = (
    5,
    2,
)  # the start: so many trials at least, and until so many succeed; its failures are free
FORGIVEN, SHARE = (
    0.5,
    0.04,
)  # failures that are within budget: so many, and this share of the trials after the start
RISK = 0.3  # probability of a failure that is accepted where the budget is just used up; halved by each one beyond
LEAST, MOST = 0.3, 0.97  # bounds of the probability of success that is demanded
BARRIER = 1e4  # loss of logarithmic value by probability that is missing
PRICE = 1.0  # of a failure, in standardised losses, where the budget is just used up; doubled by each one beyond
UNPAYABLE = 1e30
LEAST_WORTH = -200.0  # logarithm of a gain for which no failure is risked
REACHED = 0.85  # quantile of the probabilities that are predicted for successes that are left out
BLUR = 0.25  # variance of a label that the regression leaves out: fitted to what came of chosen candidates


class Feasibility:
    """Probability that none of the kinds of failure seen so far strikes.

    Each kind is a Gaussian process on the labels +1 (succeeded) and -1 (failed so); that the value is positive is
    the probability. It predicted better than Laplace's approximation with a logistic likelihood, see docs. Where
    the quantity that brings a kind about is measured, that and its limit are modelled instead (`Bound`).
    A search that maximises anything picks the candidates whose probability is overestimated, so the probability that
    it demands follows what happened, as the step of an integral controller: it rises with each failure beyond a budget
    and falls as trials succeed.

    Args:
        fitters: by kind of failure, of the labels; their noise prior says how sharp a boundary is.
        unit: `n x d`; kinds: `n`, "" where the trial succeeded.
        measured: by kind of failure, the quantity whose excess brings it about.
        best: `b x d`, configurations beside which the next trial may be: no more is demanded than they are given.
    """

    def __init__(
        self,
        fitters: Mapping[str, Fitter],
        unit: Array,
        kinds: NDArray[np.str_],
        measured: Mapping[str, Quantity] = MappingProxyType({}),
        best: Array | None = None,
    ) -> None:
        overrun = _overrun(kinds != "")
        seen = sorted(set(kinds.tolist()) - {""})
        self.parts: list[Classifier | Bound] = []
        for kind in seen:
            if kind in measured and (kinds == "").any():
                self.parts.append(Bound.fit(measured[kind], unit[kinds == ""], unit[kinds == kind]))
            else:
                self.parts.append(Classifier.fit(fitters[kind], unit, kinds, kind))
        exact = any(
            isinstance(part, Bound) for part in self.parts
        )  # no blurred labels: the edge is where it seems
        self.price = UNPAYABLE if exact else price(overrun)
        reached = math.prod(part.reached(REACHED) for part in self.parts)
        self.demanded = min(
            demanded(overrun), reached
        )  # more cannot be asked where failures are mere chance
        if best is not None and len(best) and self.parts:
            self.demanded = min(self.demanded, float(self.log_probability(best).exp().max()))

    def sketch(self) -> Feasibility:
        """The same with few of the hyperparameter vectors, for a first look."""
        rough = copy(self)
        rough.parts = [part.sketch() for part in self.parts]
        return rough

    def accepting(self, probability: float) -> Feasibility:
        """The same where no more than that probability of success is demanded."""
        bold = copy(self)
        bold.demanded = min(self.demanded, probability)
        return bold

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for part in self.parts:
            total += part.log_probability(unit)
        return total

    def weighed(self, log_gain: Tensor, unit: Array) -> Tensor:
        """Log of what `m` candidates are worth that would gain so much: the gain times the probability of success, less
        the price of the probability that is missing from the one demanded; far below all others where that is more."""
        log_probability = self.log_probability(unit)
        worth = log_gain + log_probability
        missing = (self.demanded - log_probability.exp()).clamp(min=0.0)
        spent = self.price * missing / worth.clamp(min=LEAST_WORTH).exp()
        bought = torch.where(spent < 1.0, worth + torch.log1p(-spent.clamp(max=1.0)), -math.inf)
        return torch.maximum(worth - BARRIER * missing, bought)


def _overrun(failed: NDArray[np.bool_]) -> float:
    """How many more of the trials have failed than are within budget; those of the start are chance."""
    succeeded = np.flatnonzero(~failed)
    start = max(
        UNGUIDED, int(succeeded[SUCCESSES - 1]) + 1 if len(succeeded) >= SUCCESSES else len(failed)
    )
    later = failed[start:]
    return float(later.sum()) - FORGIVEN - SHARE * len(later)


def demanded(overrun: float) -> float:
    """The probability of success to demand of the next trial, after so many failures more than the budget has."""
    risk = RISK * math.exp2(min(-overrun, 60.0))  # ten thousand successes must not overflow
    return min(max(1.0 - risk, LEAST), MOST)


def price(overrun: float) -> float:
    """What a failure costs after so many more than the budget has, in standardised losses."""
    return PRICE * math.exp2(max(min(overrun, 60.0), -10.0))


@dataclass(frozen=True)
class Classifier:
    """Whether one kind of failure stays away: a model of the labels less their (shrunken) mean `offset`."""

    encoder: Encoder
    model: Ensemble
    offset: float

    @classmethod
    def fit(cls, fitter: Fitter, unit: Array, kinds: NDArray[np.str_], kind: str) -> Classifier:
        """Learn from successes and failures of this kind."""
        rows = (kinds == "") | (kinds == kind)
        labels = np.where(kinds[rows] == "", 1.0, -1.0)
        known = settled(labels)
        offset = float(known.sum()) / (len(known) + 2.0)
        newest = np.arange(len(labels), 0, -1.0)
        model, _ = fitter.fit(unit[rows], labels - offset, newest)
        return cls(fitter.encoder, model, offset)

    def sketch(self) -> Classifier:
        """With few of the hyperparameter vectors."""
        return replace(self, model=self.model.sketch())

    def log_probability(self, unit: Array) -> Tensor:
        """Of `m` configurations."""
        mean, variance = self.model.predict(self.encoder(unit))
        return self._log_probability(mean, variance + self.model.hyper.noise[:, None])

    def reached(self, quantile: float) -> float:
        """The probability that the others ascribe to most of the successes; 1 where there is none."""
        succeeded = self.model.y + self.offset > 0
        likely = self._log_probability(*self.model.leave_one_out()).exp()[succeeded]
        return float(likely.quantile(quantile)) if len(likely) else 1.0

    def _log_probability(self, mean: Tensor, variance: Tensor) -> Tensor:
        z = (mean + self.offset) / (variance + BLUR).sqrt()
        return torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))
