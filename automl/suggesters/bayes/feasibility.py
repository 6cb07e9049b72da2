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

TOLERATED = 0.08  # share of the last trials that may fail before candidates must be safer
CAUTION = 20.0  # how fast the power of the probability grows with the share beyond that
MOST_CAREFUL = 6.0
RECENT = 30


class Feasibility:
    """Probability that none of the kinds of failure seen so far strikes.

    Each kind is a Gaussian process on the labels +1 (succeeded) and -1 (failed so); that the value is positive is
    the probability. It predicted better than Laplace's approximation with a logistic likelihood, see docs/bayes.md.
    Its power in the acquisition is 1 while few trials fail and grows with the share of the last ones that did.

    Args:
        fitters: by kind of failure, of the labels; their noise prior says how sharp a boundary is.
        unit: `n x d`; kinds: `n`, "" where the trial succeeded.
    """

    def __init__(self, fitters: Mapping[str, Fitter], unit: Array, kinds: NDArray[np.str_]) -> None:
        share = float((kinds != "")[-RECENT:].mean()) if len(kinds) else 0.0
        self.power = min(1.0 + CAUTION * max(share - TOLERATED, 0.0), MOST_CAREFUL)
        self.parts = [_classify(fitters[kind], unit, kinds, kind) for kind in sorted(set(kinds.tolist()) - {""})]

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations, times the power."""
        total = torch.zeros(len(unit), dtype=torch.float64)
        for encoder, model, offset in self.parts:
            mean, variance = model.predict(encoder(unit))
            z = (mean + offset) / (variance + model.hyper.noise[:, None]).sqrt()
            total += torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))
        return self.power * total


def _classify(fitter: Fitter, unit: Array, kinds: NDArray[np.str_], kind: str) -> tuple[Encoder, Ensemble, float]:
    """The encoder, the model of the labels less their (shrunken) mean, and that mean."""
    rows = (kinds == "") | (kinds == kind)
    labels = np.where(kinds[rows] == "", 1.0, -1.0)
    offset = float(labels.sum()) / (len(labels) + 2.0)
    newest = np.arange(len(labels), 0, -1.0)
    model, _ = fitter.fit(unit[rows], labels - offset, newest)
    return fitter.encoder, model, offset
