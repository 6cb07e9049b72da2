"""A Gaussian process over configurations and progress, for learning curves.

k((x, t), (x', t')) = kx(x, x') (a + b kt(t, t')) + same(c + d kt(t, t')) + e kt(t, t') + noise

kx is Matern-5/2 over configurations, kt is Matern-3/2 over the logarithm of progress, and `same`
is 1 for two points of one curve, else 0. The terms are shared by similar configurations, by one
curve, and by all curves. Source: Swersky et al., "Freeze-thaw Bayesian optimization", 2014; they
take an exponential decay for kt and use x for the asymptote only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from automl.suggesters.bayes.kernel import matern52

Array = NDArray[np.float64]

# Prior of the logarithms of a, b, c, d, e, noise and the length over time; then lengths over x.
CENTRE: Final = (-0.7, -1.2, -3.0, -3.0, -0.7, -6.5, 0.5)
WIDTH: Final = (1.0, 1.0, 1.5, 1.5, 1.0, 1.5, 0.7)
LENGTH_WIDTH: Final = 0.8
ITERATIONS: Final = 40
JITTER: Final = 1e-6


@dataclass(frozen=True)
class Points:
    """Points on curves.

    Args:
        z: features of the configurations, `n x f`; t: log progress, `n`.
        curve: the number of each point's curve, `n`; -1 for a curve without data.
    """

    z: Tensor
    t: Tensor
    curve: Tensor


@dataclass(frozen=True)
class Kernel:
    """The covariance function.

    Args:
        u: logarithms of the hyperparameters, `7 + groups`.
        groups: index of the length of each feature, `f`.
    """

    u: Tensor
    groups: Tensor

    def __call__(self, one: Points, other: Points) -> Tensor:
        """Covariance `n x m`."""
        return self.grid(one, one.t[:, None], other)[:, 0]

    def grid(self, one: Points, times: Tensor, other: Points) -> Tensor:
        """Covariance `m x h x n` of `m` curves at log progresses `times` with `other`."""
        a, b, c, d, e = self.u[:5].exp()
        length = self.u[7:].exp()[self.groups]
        z, others = one.z / length, other.z / length
        squares = z.square().sum(1)[:, None] + others.square().sum(1) - 2.0 * z @ others.T
        kx = matern52(squares)[:, None, :]
        kt = _matern32((times[:, :, None] - other.t).abs() / self.u[6].exp())
        same = (one.curve[:, None] == other.curve) & (one.curve[:, None] >= 0)
        found: Tensor = torch.addcmul(e * kt, kx, a + b * kt) + same[:, None, :] * (c + d * kt)
        return found

    @property
    def noise(self) -> Tensor:
        """Variance of a report."""
        return self.u[5].exp() + JITTER


def prior(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Prior mean and standard deviation of the log hyperparameters."""
    count = int(groups.max()) + 1 if len(groups) else 0
    length = math.log(0.5) + 0.5 * math.log(max(count, 1))
    centre = torch.tensor([*CENTRE, *[length] * count], dtype=torch.float64)
    width = torch.tensor([*WIDTH, *[LENGTH_WIDTH] * count], dtype=torch.float64)
    return centre, width


@dataclass(frozen=True)
class Posterior:
    """The process conditioned on values `y` at `points`; `mean` is its prior mean."""

    kernel: Kernel
    points: Points
    y: Tensor
    factor: Tensor
    weights: Tensor
    mean: Tensor

    @classmethod
    def condition(cls, kernel: Kernel, points: Points, y: Tensor) -> Posterior:
        """Condition on `y` (`n`); RuntimeError if the covariance is not positive definite."""
        covariance = kernel(points, points)
        covariance.diagonal().add_(kernel.noise)
        factor = torch.linalg.cholesky(covariance)
        ones = torch.cholesky_solve(torch.ones_like(y)[:, None], factor)[:, 0]
        mean = (ones @ y + 1.0) / (ones.sum() + 1.0)  # about 1: the median
        weights = torch.cholesky_solve((y - mean)[:, None], factor)[:, 0]
        return cls(kernel, points, y, factor, weights, mean)

    def log_density(self) -> Tensor:
        """Log density of `y`, with a mean of prior N(1, 1), up to a constant."""
        fit = 0.5 * (self.y - self.mean) @ self.weights + self.factor.diagonal().log().sum()
        return -fit - 0.5 * (self.mean - 1.0) ** 2

    def predict(self, points: Points) -> tuple[Tensor, Tensor]:
        """Mean and variance, `m` each, without noise."""
        mean, variance = self.predict_grid(points, points.t[:, None])
        return mean[:, 0], variance[:, 0]

    def predict_grid(self, points: Points, times: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, `m x h` each, of `m` curves at log progresses (`m x h` or `1 x h`)."""
        grid = self.kernel.grid(points, times, self.points)
        cross = grid.reshape(-1, len(self.y))
        solved = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        variance = (self.kernel.u[:5].exp().sum() - solved.square_().sum(0)).clamp(min=1e-10)
        mean = self.mean + cross @ self.weights
        return mean.view(grid.shape[:2]), variance.view(grid.shape[:2])

    def fantasize(self, points: Points) -> Posterior:
        """Condition on the mean at further points (kriging believer, Ginsbourger et al., 2010)."""
        pairs = zip(vars(self.points).values(), vars(points).values(), strict=True)
        joined = Points(*(torch.cat(pair) for pair in pairs))
        y = torch.cat([self.y, self.predict(points)[0]])
        return Posterior.condition(self.kernel, joined, y)


def _matern32(r: Tensor) -> Tensor:
    s = math.sqrt(3.0) * r
    return (1 + s) * torch.exp(-s)


def fit(points: Points, y: Tensor, groups: Tensor) -> Tensor:
    """Hyperparameters (`7 + groups`, logarithms), a posteriori, by L-BFGS from the prior's mean."""
    centre, width = prior(groups)

    def loss(v: Array) -> tuple[float, Array]:
        at = torch.from_numpy(v).requires_grad_()
        try:
            posterior = Posterior.condition(Kernel(centre + width * at, groups), points, y)
        except RuntimeError:  # not positive definite
            return 1e10, np.zeros_like(v)
        value = 0.5 * at.square().sum() - posterior.log_density()
        (gradient,) = torch.autograd.grad(value, at)
        return value.item(), gradient.numpy()

    bounds, options = [(-4.0, 4.0)] * len(centre), {"maxiter": ITERATIONS}
    found = minimize(
        loss, np.zeros(len(centre)), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return centre + width * torch.from_numpy(found.x)
