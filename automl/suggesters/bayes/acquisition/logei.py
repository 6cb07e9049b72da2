"""The logarithm of expected improvement under the ensemble (LogEI)."""

import math

import torch
from torch import Tensor

from automl.suggesters.bayes.model.gp import Ensemble
from automl.suggesters.bayes.model.kernel import Features

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


def log_expected_improvement(
    model: Ensemble, candidates: Features, index: Tensor, power: float = POWER
) -> Tensor:
    """Log of the expected improvement over f(observed[index]), averaged over the ensemble, `m`.

    The average is a power mean. The arithmetic mean follows the least certain vector and keeps
    trying far corners. The geometric mean tries nothing that any vector finds hopeless.

    The best trial's own value is uncertain too, so the improvement is the difference of two jointly
    normal values. Under noise, this does not reward measuring the best trial again.

    Args:
        index: `s`, the best trial of each hyperparameter vector.
        power: of the mean.
    """
    mean, variance = model.improvement(candidates, index)
    deviation = variance.sqrt()
    each = deviation.log() + log_h(mean / deviation)
    return (torch.logsumexp(power * each, 0) - math.log(len(each))) / power


def best_predicted(model: Ensemble, allowed: Tensor) -> Tensor:
    """`s`, the best observation under each hyperparameter vector, of those `allowed` (`n`)."""
    mean, _ = model.predict(model.features[slice(0, len(allowed))])
    return mean.masked_fill(~allowed, torch.inf).argmin(1)
