"""How likely a configuration is to succeed, learned from what failed: one classifier a kind of failure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data import Array
from .encoding import Encoder
from .gp import Ensemble
from .measured import Quantity
from .models import Fitter

TOLERATED = 0.08  # share of the trials that should fail once there is a surrogate
FIRST, LEAST, MOST = 0.5, 0.3, 0.95  # probability of success to demand: at first, bounds
STEP = 0.5  # how far a failure moves the logit of that probability
STEEPNESS = 30.0  # loss of logarithmic value by probability that is missing


class Feasibility:
    """Probability that none of the kinds of failure seen so far strikes.

    Each kind is a Gaussian process on the labels +1 (succeeded) and -1 (failed so); that the value is positive is
    the probability. It predicted better than Laplace's approximation with a logistic likelihood, see docs/bayes.md.
    A search that maximises anything picks the candidates whose probability is overestimated, so the probability that
    it demands follows what happened: up with each failure, down with each success (Gibbs and Candes, "Adaptive
    conformal inference under distribution shift", 2021). Less is accepted where very much is expected.

    Args:
        fitters: by kind of failure, of the labels; their noise prior says how sharp a boundary is.
        unit: `n x d`; kinds: `n`, "" where the trial succeeded; num_start: trials that no model chose.
        measured: by kind of failure, the quantity whose excess brings it about.
    """

    def __init__(
        self,
        fitters: Mapping[str, Fitter],
        unit: Array,
        kinds: NDArray[np.str_],
        num_start: int = 0,
        measured: Mapping[str, Quantity] = MappingProxyType({}),
    ) -> None:
        self.demanded = demanded(kinds[num_start:] != "")
        seen = sorted(set(kinds.tolist()) - {""})
        self.parts = [Classifier.fit(fitters[kind], unit, kinds, kind, measured.get(kind)) for kind in seen]

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for part in self.parts:
            total += part.log_probability(unit)
        return total

    def log_weight(self, unit: Array) -> Tensor:
        """What the acquisition adds: the log probability, and a penalty below the one that is demanded."""
        log_probability = self.log_probability(unit)
        return log_probability - STEEPNESS * (self.demanded - log_probability.exp()).clamp(min=0.0)


def demanded(failed: NDArray[np.bool_]) -> float:
    """The probability of success to demand of the next trial, after these (in order)."""
    low, high = (math.log(p / (1 - p)) for p in (LEAST, MOST))
    logit = math.log(FIRST / (1 - FIRST))
    for one in failed.tolist():
        logit += STEP if one else -STEP * TOLERATED / (1 - TOLERATED)
        logit = min(max(logit, low), high)
    return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True)
class Classifier:
    """Whether one kind of failure stays away: a model of the labels less their (shrunken) mean `offset`."""

    encoder: Encoder
    model: Ensemble
    offset: float
    measured: Quantity | None

    @classmethod
    def fit(
        cls, fitter: Fitter, unit: Array, kinds: NDArray[np.str_], kind: str, measured: Quantity | None
    ) -> Classifier:
        """Learn from successes and failures of this kind; what is expected of `measured` is one more coordinate."""
        rows = (kinds == "") | (kinds == kind)
        labels = np.where(kinds[rows] == "", 1.0, -1.0)
        offset = float(labels.sum()) / (len(labels) + 2.0)
        newest = np.arange(len(labels), 0, -1.0)
        model, _ = fitter.fit(_with_column(unit[rows], measured), labels - offset, newest)
        return cls(fitter.encoder, model, offset, measured)

    def log_probability(self, unit: Array) -> Tensor:
        """Of `m` configurations."""
        mean, variance = self.model.predict(self.encoder(_with_column(unit, self.measured)))
        z = (mean + self.offset) / (variance + self.model.hyper.noise[:, None]).sqrt()
        return torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))


def _with_column(unit: Array, measured: Quantity | None) -> Array:
    return np.column_stack([unit, measured.column(unit) if measured else np.full(len(unit), np.nan)])
