"""Leave-one-out calibration: whether a surrogate predicts well enough to be used."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from automl.suggesters.bayes.model import EnsembleGP

MIN_TRIALS = 8  # of fewer trials, calibration says nothing
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Calibration:
    """Leave-one-out predictions of one metric, compared with the observed values.

    Args:
        metric: its name.
        count: number of trials.
        coverage_50: share of the trials inside the central 50% interval.
        coverage_90: share of the trials inside the central 90% interval.
        log_density: mean log predictive density, of transformed, standardised values.
        constant_log_density: the same of a normal distribution with the mean and variance of all
            other values.
        rank_correlation: of predicted and observed values, Spearman's.
    """

    metric: str
    count: int
    coverage_50: float
    coverage_90: float
    log_density: float
    constant_log_density: float
    rank_correlation: float

    @property
    def reliable(self) -> bool:
        """Whether the model predicts better than a constant, and its intervals are wide enough."""
        if self.count < MIN_TRIALS:
            return True
        return self.log_density > self.constant_log_density - 0.1 and self.coverage_90 >= 0.6

    @property
    def believable(self) -> bool:
        """Whether it is reliable, and its rank correlation is significantly above 0, at 5%.

        With n trials and a correlation of r, t = r sqrt((n - 2) / (1 - r^2)) has a Student
        distribution with n - 2 degrees of freedom if the true correlation is 0 (Kendall and Stuart,
        "The Advanced Theory of Statistics", volume 2, section 31.18, 1973).
        """
        if math.isnan(self.rank_correlation) or not self.reliable:
            return False
        from scipy.stats import t

        r = max(-1 + 1e-12, min(self.rank_correlation, 1 - 1e-12))
        degrees = self.count - 2
        return bool(t.sf(r * math.sqrt(degrees / (1 - r * r)), degrees) < SIGNIFICANCE)

    def __str__(self) -> str:
        word = "believable" if self.believable else "not believable"
        return (
            f"{self.metric}: {word}; {self.count} trials, "
            f"intervals of 50% and 90% hold {self.coverage_50:.0%} and {self.coverage_90:.0%}, "
            f"log density {self.log_density:.2f} against {self.constant_log_density:.2f} of a "
            f"constant, rank correlation {self.rank_correlation:.2f}"
        )


def calibrate(metric: str, model: EnsembleGP) -> Calibration:
    """Compare each target with the prediction from all others."""
    mean, variance = model.leave_one_out()
    y = model.y[0]
    below = torch.special.ndtr((y - mean) / variance.sqrt()).mean(0)
    density = -0.5 * (y - mean).square() / variance - 0.5 * (2 * math.pi * variance).log()
    density = torch.logsumexp(density, 0) - math.log(len(mean))
    return Calibration(
        metric=metric,
        count=len(y),
        coverage_50=float(((below - 0.5).abs() <= 0.25).double().mean()),
        coverage_90=float(((below - 0.5).abs() <= 0.45).double().mean()),
        log_density=float(density.mean()),
        constant_log_density=_constant(y),
        rank_correlation=_spearman(mean.mean(0), y),
    )


def _constant(y: Tensor) -> float:
    """Mean log density of each target under a normal distribution fitted to the others."""
    n = len(y)
    if n < 3:
        return -math.inf
    mean = (y.sum() - y) / (n - 1)
    variance = ((y.square().sum() - y.square()) / (n - 1) - mean.square()).clamp(min=1e-6)
    return float(
        (-0.5 * (y - mean).square() / variance - 0.5 * (2 * math.pi * variance).log()).mean()
    )


def _spearman(a: Tensor, b: Tensor) -> float:
    if len(a) < 3 or bool((a == a[0]).all()) or bool((b == b[0]).all()):
        return math.nan
    from scipy.stats import spearmanr

    return float(spearmanr(a.numpy(), b.numpy()).statistic)
