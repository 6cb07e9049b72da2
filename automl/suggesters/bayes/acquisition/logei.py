"""The logarithm of expected improvement under the ensemble (LogEI)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Tensor

from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.kernel import Features

FREEDOM = 5.0  # degrees of freedom before the first proposal
POWER = 0.25  # of the mean over the ensemble; 1 is the arithmetic mean, 0 the geometric


def log_h(z: Tensor) -> Tensor:
    """log(phi(z) + z Phi(z)), stable far into the left tail.

    After Ament et al., "Unexpected improvements to expected improvement", 2023.
    """
    direct = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) + z * torch.special.ndtr(z)
    near = torch.log(direct.clamp(min=1e-300))
    far = z.clamp(max=-4.0)
    ratio = torch.special.erfcx(-far / math.sqrt(2.0)) * far * math.sqrt(math.pi / 2)
    tail = -0.5 * far * far - 0.5 * math.log(2 * math.pi) + torch.log1p(ratio.clamp(min=-1 + 1e-12))
    return torch.where(z > -4.0, near, tail)


@dataclass(frozen=True)
class Tails:
    """The scale of a surrogate's errors, learned from one-step-ahead forecasts of own proposals.

    The variance has an inverse gamma prior with `FREEDOM` degrees of freedom around that of the
    surrogate. So predictions have Student's distribution (Shah et al., "Student-t processes as
    alternatives to Gaussian processes", 2014). Trials of the design do not count: random points
    are predicted well, the proposals are missed.

    Args:
        scale: `s`, factor of standard deviations.
        freedom: degrees of freedom.
    """

    scale: Tensor
    freedom: float

    @classmethod
    def of(cls, model: Ensemble, own: NDArray[np.bool_]) -> Tails:
        """Learn from the trials in their order.

        Args:
            own: `n`, which of the first trials of the model were proposed by a surrogate.
        """
        residual = (model.y - model.features.mean).expand(len(model.u), -1)
        misses = (model.whiten @ residual[:, :, None])[:, : len(own), 0][:, torch.from_numpy(own)]
        freedom = FREEDOM + misses.shape[1]
        return cls(((FREEDOM + misses.square().sum(1)) / freedom).sqrt(), freedom)

    def log_h(self, z: Tensor) -> Tensor:
        """Log of the expected improvement of Student's distribution with scale 1."""
        v = self.freedom
        log_density = math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(v * math.pi)
        density = torch.exp(log_density - (v + 1) / 2 * torch.log1p(z * z / v))
        below = torch.from_numpy(stdtr(v, z.numpy()))
        return torch.log((z * below + (v + z * z) / (v - 1) * density).clamp(min=1e-300))


def log_expected_improvement(
    model: Ensemble,
    candidates: Features,
    index: Tensor,
    power: float = POWER,
    tails: Tails | None = None,
) -> Tensor:
    """Log of the expected improvement over f(observed[index]), averaged over the ensemble, `m`.

    The average is a power mean. The arithmetic mean follows the least certain vector and keeps
    trying far corners. The geometric mean tries nothing that any vector finds hopeless.

    The best trial's own value is uncertain too, so the improvement is the difference of two jointly
    normal values. Under noise, this does not reward measuring the best trial again.

    Args:
        index: `s`, the best trial of each hyperparameter vector.
        power: of the mean.
        tails: of the predictions; None for those of the surrogate.
    """
    mean, variance = model.improvement(candidates, index)
    deviation = variance.sqrt()
    if tails is None:
        each = deviation.log() + log_h(mean / deviation)
    else:
        deviation = deviation * tails.scale[: len(deviation), None]
        each = deviation.log() + tails.log_h(mean / deviation)
    return (torch.logsumexp(power * each, 0) - math.log(len(each))) / power


def best_predicted(model: Ensemble, allowed: Tensor) -> Tensor:
    """`s`, the best observation under each hyperparameter vector, of those `allowed` (`n`)."""
    mean, _ = model.predict(model.features[slice(0, len(allowed))])
    return mean.masked_fill(~allowed, torch.inf).argmin(1)
