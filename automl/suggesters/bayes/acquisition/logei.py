"""What a candidate is worth: the logarithm of expected improvement under the ensemble."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from automl.suggesters.bayes.model.external import External
from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.kernel import Features

POWER = 0.25  # of the mean over the ensemble: 1 is the arithmetic, near 0 the geometric mean


def log_h(z: Tensor) -> Tensor:
    """log(phi(z) + z Phi(z)), stable far into the left tail (Ament et al., "Unexpected improvements to EI", 2023)."""
    direct = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) + z * torch.special.ndtr(z)
    near = torch.log(direct.clamp(min=1e-300))
    far = z.clamp(max=-4.0)
    ratio = torch.special.erfcx(-far / math.sqrt(2.0)) * far * math.sqrt(math.pi / 2)
    tail = -0.5 * far * far - 0.5 * math.log(2 * math.pi) + torch.log1p(ratio.clamp(min=-1 + 1e-12))
    return torch.where(z > -4.0, near, tail)


def log_expected_improvement(
    model: Ensemble | External, candidates: Features, index: Tensor
) -> Tensor:
    """Log of the expected improvement over f(observed[index]), averaged over the ensemble, `m`.

    The average is a power mean: that of the expectations themselves follows the one vector that knows least, and tries
    far corners for ever; that of their logarithms tries nothing that any vector thinks hopeless.

    The best configuration's own value is uncertain too: the improvement is the difference of two jointly normal
    values, which under noise does not reward measuring the best one again.
    """
    mean, variance = model.improvement(candidates, index)
    deviation = variance.sqrt()
    each = deviation.log() + log_h(mean / deviation)
    return (torch.logsumexp(POWER * each, 0) - math.log(len(each))) / POWER


def best_predicted(model: Ensemble | External, allowed: Tensor) -> Tensor:
    """`s`, which of the observations each hyperparameter vector takes for the best of those `allowed` (`n`)."""
    mean, _ = model.predict(model.features[slice(0, len(allowed))])
    return mean.masked_fill(~allowed, torch.inf).argmin(1)
