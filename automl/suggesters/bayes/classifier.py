"""Whether one kind of failure stays away: a Gaussian process classifier with a logistic likelihood.

What fails mostly lies beyond a smooth surface that a few parameters decide, so the latent function is a linear one
plus pairwise interactions and a stationary rest, all with large fixed variances: there are too few failures to learn
more from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LINEAR, PAIR, LOCAL = 100.0, 10.0, 30.0  # prior variances of the latent function
REACH = 1.0  # lengthscale of the stationary part, by the root of the number of coordinates
MOST_STEPS = 30
SETTLED = 1e-6  # gain of the log posterior below which Newton's method stops


def covariance(left: Tensor, right: Tensor) -> Tensor:
    """Prior covariance of the latent function, `n x m`."""
    distance = torch.cdist(left, right) / (REACH * math.sqrt(left.shape[1]))
    inner = left @ right.T
    return LINEAR * (1.0 + inner) + PAIR * inner.square() + LOCAL * torch.exp(-0.5 * distance.square())


@dataclass(frozen=True)
class Classifier:
    """Laplace's approximation (Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 3.4).

    Args:
        x: `n x c` coordinates; gradient: `n`, of the log likelihood at the mode; root: `n`, of minus its curvature.
        factor: `n x n`, lower Cholesky factor of 1 + root covariance root.
    """

    x: Tensor
    gradient: Tensor
    root: Tensor
    factor: Tensor

    @classmethod
    def fit(cls, x: Tensor, succeeded: Tensor) -> Classifier:
        """Learn from `n x c` coordinates and whether each succeeded (`n`, 0 or 1); n >= 1."""
        prior = covariance(x, x)
        latent, value = torch.zeros_like(succeeded), -math.inf
        weights = latent
        for _ in range(MOST_STEPS):
            step, new_value = 1.0, -math.inf
            target = _newton(prior, latent, succeeded)
            while step > 1e-3:
                trial = weights + step * (target - weights)
                new_value = _log_posterior(prior, trial, succeeded)
                if new_value >= value:
                    break
                step *= 0.5
            if not new_value > value + SETTLED:
                break
            weights, latent, value = trial, prior @ trial, new_value
        likely = torch.sigmoid(latent)
        root = (likely * (1.0 - likely)).clamp(min=1e-12).sqrt()
        return cls(x, succeeded - likely, root, _factor(prior, root))

    def log_probability(self, x: Tensor) -> Tensor:
        """Log probability of success at `m x c` coordinates (MacKay's approximation of the integral, 1992)."""
        k = covariance(x, self.x)
        white = torch.linalg.solve_triangular(self.factor, (self.root * k).T, upper=False)
        inner = x.square().sum(1)
        own = LINEAR * (1.0 + inner) + PAIR * inner.square() + LOCAL
        variance = (own - white.square().sum(0)).clamp(min=0.0)
        return torch.nn.functional.logsigmoid((k @ self.gradient) / (1.0 + math.pi / 8 * variance).sqrt())


def _factor(prior: Tensor, root: Tensor) -> Tensor:
    inside = root[:, None] * prior * root[None, :]
    inside.diagonal().add_(1.0)
    factor: Tensor = torch.linalg.cholesky(inside)
    return factor


def _newton(prior: Tensor, latent: Tensor, succeeded: Tensor) -> Tensor:
    """Newton's next iterate, as the weights of the covariance's columns."""
    likely = torch.sigmoid(latent)
    curvature = (likely * (1.0 - likely)).clamp(min=1e-12)
    root = curvature.sqrt()
    b = curvature * latent + succeeded - likely
    solved = torch.cholesky_solve((root * (prior @ b))[:, None], _factor(prior, root))[:, 0]
    return b - root * solved


def _log_posterior(prior: Tensor, weights: Tensor, succeeded: Tensor) -> float:
    latent = prior @ weights
    signs = 2.0 * succeeded - 1.0
    return float(-0.5 * weights @ latent + torch.nn.functional.logsigmoid(signs * latent).sum())
