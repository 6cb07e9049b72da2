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
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from torch import Tensor

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

    def __len__(self) -> int:
        return len(self.t)


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
        a, b, c, d, e = self.u[:5].exp()
        length = self.u[7:].exp()[self.groups]
        kx = _matern52(_distance(one.z / length, other.z / length))
        kt = _matern32((one.t[:, None] - other.t[None, :]).abs() / self.u[6].exp())
        same = (one.curve[:, None] == other.curve[None, :]) & (one.curve[:, None] >= 0)
        found: Tensor = kx * (a + b * kt) + torch.where(same, c + d * kt, torch.zeros(())) + e * kt
        return found

    def grid(self, one: Points, times: Tensor, other: Points) -> Tensor:
        """Covariance `m x h x n` of `m` curves at log progresses `times` with `other`."""
        a, b, c, d, e = self.u[:5].exp()
        length = self.u[7:].exp()[self.groups]
        kx = _matern52(_distance(one.z / length, other.z / length))[:, None, :]
        kt = _matern32((times[:, :, None] - other.t).abs() / self.u[6].exp())
        found = torch.addcmul(e * kt, kx, a + b * kt)
        if bool((one.curve >= 0).any()):
            same = (one.curve[:, None] == other.curve) & (one.curve[:, None] >= 0)
            found += same[:, None, :] * (c + d * kt)
        return found

    def diagonal(self) -> Tensor:
        """The prior variance of a point."""
        return self.u[:5].exp().sum()

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
    """The process conditioned on values at `points`; `mean` is its prior mean."""

    kernel: Kernel
    points: Points
    factor: Tensor
    weights: Tensor
    mean: float

    @classmethod
    def condition(cls, kernel: Kernel, points: Points, y: Tensor) -> Posterior:
        """Condition on `y` (`n`); RuntimeError if the covariance is not positive definite."""
        covariance = kernel(points, points)
        covariance.diagonal().add_(kernel.noise)
        factor = torch.linalg.cholesky(covariance)
        ones = torch.cholesky_solve(torch.ones_like(y)[:, None], factor)[:, 0]
        mean = float((ones @ y + 1.0) / (ones.sum() + 1.0))  # about 1: the median
        weights = torch.cholesky_solve((y - mean)[:, None], factor)[:, 0]
        return cls(kernel, points, factor, weights, mean)

    def predict(self, points: Points) -> tuple[Tensor, Tensor]:
        """Mean and variance, `m` each, without noise."""
        return self._from(self.kernel(points, self.points))

    def predict_grid(self, points: Points, times: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, `m x h` each, of `m` curves at log progresses (`m x h` or `1 x h`)."""
        cross = self.kernel.grid(points, times, self.points)
        mean, variance = self._from(cross.reshape(-1, len(self.points)))
        return mean.view(cross.shape[:2]), variance.view(cross.shape[:2])

    def _from(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        solved = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        variance = self.kernel.diagonal() - solved.square_().sum(0)
        return self.mean + cross @ self.weights, variance.clamp(min=1e-10)

    def fantasize(self, points: Points) -> Posterior:
        """Condition on the mean at further points (kriging believer, Ginsbourger et al., 2010)."""
        if not len(points):
            return self
        n = len(self.points)
        cross = self.kernel(points, self.points)
        lower = torch.linalg.solve_triangular(self.factor, cross.T, upper=False)
        inner = self.kernel(points, points) - lower.T @ lower
        inner.diagonal().add_(self.kernel.noise)
        factor = torch.zeros((n + len(points),) * 2, dtype=torch.float64)
        factor[:n, :n], factor[n:, :n] = self.factor, lower.T
        factor[n:, n:] = torch.linalg.cholesky(inner)
        # The mean does not change.
        weights = torch.cat([self.weights, torch.zeros(len(points), dtype=torch.float64)])
        pairs = zip(vars(self.points).values(), vars(points).values(), strict=True)
        joined = Points(*(torch.cat(pair) for pair in pairs))
        return Posterior(self.kernel, joined, factor, weights, self.mean)


def _distance(one: Tensor, other: Tensor) -> Tensor:
    squares = one.square().sum(1)[:, None] + other.square().sum(1)[None, :] - 2 * one @ other.T
    return (squares.clamp(min=0.0) + 1e-12).sqrt()


def _matern52(r: Tensor) -> Tensor:
    s = math.sqrt(5.0) * r
    return (1 + s + s * s / 3) * torch.exp(-s)


def _matern32(r: Tensor) -> Tensor:
    s = math.sqrt(3.0) * r
    return (1 + s) * torch.exp(-s)


def fit(points: Points, y: Tensor, groups: Tensor) -> Tensor:
    """Hyperparameters (`7 + groups`, logarithms), a posteriori, by L-BFGS from the prior's mean."""
    centre, width = (part.numpy() for part in prior(groups))
    density = Density(points, y, groups)

    def loss(v: Array) -> tuple[float, Array]:
        try:
            value, gradient = density(centre + width * v)
        except np.linalg.LinAlgError:  # not positive definite
            return 1e10, np.zeros_like(v)
        return value + 0.5 * float(v @ v), width * gradient + v

    bounds, options = [(-4.0, 4.0)] * len(centre), {"maxiter": ITERATIONS}
    found = minimize(
        loss, np.zeros(len(centre)), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return torch.from_numpy(centre + width * found.x)


class Density:
    """Negative log density of `y` (`n`) at `points`, with a mean of prior N(1, 1)."""

    def __init__(self, points: Points, y: Tensor, groups: Tensor) -> None:
        z, t, self.y = points.z.numpy(), points.t.numpy(), y.numpy()
        squares = np.square(z[:, None, :] - z[None, :, :])
        each, count = groups.numpy(), int(groups.max()) + 1 if len(groups) else 0
        self.squares = np.stack(
            [squares[:, :, each == g].sum(2) for g in range(count)]
        )  # g x n x n
        self.gaps = math.sqrt(3.0) * np.abs(t[:, None] - t[None, :])
        curve = points.curve.numpy()
        self.same = ((curve[:, None] == curve[None, :]) & (curve[:, None] >= 0)).astype(np.float64)

    def __call__(self, u: Array) -> tuple[float, Array]:
        """Value and gradient; raises LinAlgError if the covariance is not positive definite."""
        a, b, c, d, e = np.exp(u[:5])
        inverse, same = np.exp(-2.0 * u[7:]), self.same
        r = math.sqrt(5.0) * np.sqrt(np.tensordot(inverse, self.squares, 1) + 1e-12)
        decay = np.exp(-r)
        kx = (1 + r + r * r / 3) * decay
        s = self.gaps * math.exp(-u[6])
        fall = np.exp(-s)
        kt = (1 + s) * fall
        outer = a + b * kt
        covariance = kx * outer + same * (c + d * kt) + e * kt
        covariance.flat[:: len(self.y) + 1] += math.exp(u[5]) + JITTER
        value, w = self._above(covariance)
        wx, wt = w * kx, w * kt
        lengths = np.tensordot(self.squares, w * outer * (1 + r) * decay, 2) * inverse * (5.0 / 3.0)
        over_time = np.sum((b * wx + w * (d * same + e)) * (s * s * fall))
        parts = [
            a * wx.sum(),
            b * (wx * kt).sum(),
            c * (w * same).sum(),
            d * (wt * same).sum(),
            e * wt.sum(),
        ]
        return value, np.array([*parts, math.exp(u[5]) * np.trace(w), over_time, *lengths])

    def _above(self, covariance: Array) -> tuple[float, Array]:
        """Negative log density, and its derivative by the covariance."""
        factor = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
        inverse = cho_solve(factor, np.eye(len(self.y)), check_finite=False)
        ones = inverse.sum(0)
        mean = (ones @ self.y + 1.0) / (ones.sum() + 1.0)
        weights = inverse @ (self.y - mean)
        value = 0.5 * float((self.y - mean) @ weights) + float(np.log(factor[0].diagonal()).sum())
        return value + 0.5 * (mean - 1.0) ** 2, 0.5 * (inverse - np.outer(weights, weights))
