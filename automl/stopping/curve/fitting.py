"""Fits the hyperparameters of `gp.Kernel` by maximum a posteriori, with closed-form gradients."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from torch import Tensor

from .gp import ITERATIONS, JITTER, Points, prior

Array = NDArray[np.float64]


def fit(points: Points, y: Tensor, groups: Tensor) -> Tensor:
    """Hyperparameters (`7 + groups`, logarithms), by L-BFGS from the prior's mean."""
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
