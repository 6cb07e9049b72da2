"""How likely a configuration is to succeed, learned from what failed: one classifier a kind of failure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data import Array
from .encoding import Encoder
from .gp import Ensemble
from .models import Fitter

TOLERATED = 0.1  # share of the trials that may fail once there is a surrogate
FIRST, LEAST, MOST = 0.5, 0.2, 0.97  # probability of success that a candidate needs: at first, bounds
STEP = 0.8  # how far a failure moves the logit of that probability
STEEPNESS = 1000.0  # loss of logarithmic value by probability that is missing


class Feasibility:
    """Probability that none of the kinds of failure seen so far strikes.

    Each kind is a Gaussian process on the labels +1 (succeeded) and -1 (failed so); that the value is positive is
    the probability. It predicted better than Laplace's approximation with a logistic likelihood, see docs/bayes.md.
    A search that maximises anything picks the candidates whose probability is overestimated, so the probability that
    it demands follows what happened: up with each failure, down with each success (Gibbs and Candes, "Adaptive
    conformal inference under distribution shift", 2021), such that about `TOLERATED` of the trials fail.

    Args:
        fitters: by kind of failure, of the labels; their noise prior says how sharp a boundary is.
        unit: `n x d`; kinds: `n`, "" where the trial succeeded; num_start: trials that no model chose.
    """

    def __init__(self, fitters: Mapping[str, Fitter], unit: Array, kinds: NDArray[np.str_], num_start: int = 0) -> None:
        self.demanded = demanded(kinds[num_start:] != "")
        self.parts = [_classify(fitters[kind], unit, kinds, kind) for kind in sorted(set(kinds.tolist()) - {""})]

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for encoder, model, offset in self.parts:
            mean, variance = model.predict(encoder(unit))
            z = (mean + offset) / (variance + model.hyper.noise[:, None]).sqrt()
            total += torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))
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


def _classify(fitter: Fitter, unit: Array, kinds: NDArray[np.str_], kind: str) -> tuple[Encoder, Ensemble, float]:
    """The encoder, the model of the labels less their (shrunken) mean, and that mean."""
    rows = (kinds == "") | (kinds == kind)
    labels = np.where(kinds[rows] == "", 1.0, -1.0)
    offset = float(labels.sum()) / (len(labels) + 2.0)
    newest = np.arange(len(labels), 0, -1.0)
    model, _ = fitter.fit(unit[rows], labels - offset, newest)
    return fitter.encoder, model, offset
