"""How likely a configuration is to succeed, learned from what failed."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data import Array
from .models import Fitter


class Feasibility:
    """Probability of success by a Gaussian process on the labels +1 (succeeded) and -1 (failed).

    Args:
        fitter: of the labels; its noise prior says how sharp the boundary is.
    """

    def __init__(self, fitter: Fitter, unit: Array, failed: NDArray[np.bool_]) -> None:
        self.constant = not failed.any()
        if not self.constant:
            labels = np.where(failed, -1.0, 1.0)
            self.encoder = fitter.encoder
            self.offset = float(labels.mean()) * len(labels) / (len(labels) + 2.0)
            self.model = fitter.fit(unit, labels - self.offset)

    def log_probability(self, unit: Array) -> Tensor:
        """Log probability of success of `m` configurations."""
        if self.constant:
            return torch.zeros(len(unit), dtype=torch.float64)
        mean, variance = self.model.predict(self.encoder(unit))
        z = (mean + self.offset) / (variance + self.model.hyper.noise[:, None]).sqrt()
        return torch.logsumexp(torch.special.log_ndtr(z), 0) - math.log(len(mean))
