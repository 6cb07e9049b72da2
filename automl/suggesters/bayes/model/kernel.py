"""The surrogate's covariance, in closed form with its gradient, for a batch of hyperparameters.

    k(x, x') = v_full * Matern52(|z - z'| / l) + A(x, x') + v_pair * A(x, x')^2 + T(x, x') + 1,
    A(x, x') = sum_j v_j * phi_j(x) . phi_j(x'),    T(x, x') = sum_j tau_j(x) . tau_j(x')

plus the noise variance on the diagonal. T is a slope and a parabola of each number, whose weights
are integrated out. The mean function has the prior mean of the parabolas: losses are usually lower
inside a range than at its ends. Without it the first suggestions are the uncertain corners.

`z` embeds a configuration so that one matrix product gives all distances. For a goal it has one
more coordinate, the projection w . x of the numbers on a learned direction (the factor analysis
distance of Rasmussen and Williams, "Gaussian processes for machine learning", 2006, 5.1). Settings
such as rate and batch size often compensate each other, and good ones form a narrow ridge.
A is the additive part, one main effect for each parameter. Its square has all pairwise interactions
(Duvenaud et al., "Additive Gaussian processes", 2011). Both extrapolate from few trials.

Hyperparameters are kept standardised, `u = (log value - prior mean) / prior scale`, so that the
prior of `u` is N(0, I) for every space. w is a multiple of u |u|, which is mostly near 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

JITTER = 1e-8  # added to the noise variance


@dataclass(frozen=True)
class Features:
    """Embedded configurations.

    Args:
        z: `n x c`, coordinates of the full kernel.
        phi: `n x f`, basis functions of the additive part.
        mean: `n`, the prior mean.
        trend: `n x t`, slopes and parabolas, each with a normal weight of prior variance 1.
        runs: `n`, how many runs an observation is the mean of.
    """

    z: Tensor
    phi: Tensor
    mean: Tensor
    trend: Tensor
    runs: Tensor

    def __len__(self) -> int:
        return self.z.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Features:
        parts = (self.z, self.phi, self.mean, self.trend, self.runs)
        return Features(*(part[rows] for part in parts))

    def with_more(self, other: Features) -> Features:
        """Both, one after the other."""
        parts = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Features(*map(torch.cat, parts))


@dataclass(frozen=True)
class HyperparameterPrior:
    """Normal priors of the hyperparameters, and the parameter of each column.

    A vector has `p = 3 + 2 d + k` numbers. `FULL` to `PAIR`, `length`, `additive` and `direction`
    say where each stands. All but the direction are logarithms.

    Args:
        loc: `p`, means.
        scale: `p`, standard deviations.
        z_group: `c`, the parameter of each coordinate.
        phi_group: `f`, the parameter of each basis function.
        num_parameters: d, each has a lengthscale and a variance of its main effect.
        numbers: `k`, the columns of z that the direction combines.
    """

    loc: Tensor
    scale: Tensor
    z_group: Tensor
    phi_group: Tensor
    num_parameters: int
    numbers: Tensor
    FULL: ClassVar[int] = 0  # variance of the kernel over all parameters
    NOISE: ClassVar[int] = 1  # variance
    PAIR: ClassVar[int] = 2  # variance of the pairwise interactions

    @property
    def length(self) -> slice:
        """Lengthscales, d."""
        return slice(3, 3 + self.num_parameters)

    @property
    def additive(self) -> slice:
        """Variances of the main effects, d."""
        return slice(3 + self.num_parameters, 3 + 2 * self.num_parameters)

    @property
    def direction(self) -> slice:
        """Weights of the numbers in the learned direction, k."""
        return slice(3 + 2 * self.num_parameters, None)

    @property
    def noise(self) -> tuple[float, float]:
        """Mean and scale of the logarithm of the noise variance."""
        return float(self.loc[self.NOISE]), float(self.scale[self.NOISE])

    def values(self, u: Tensor) -> Hyperparameters:
        """Hyperparameters of standardised vectors `u` (`s x p`)."""
        u = u.clamp(-6.0, 6.0)
        value = torch.exp(self.loc + self.scale * u)
        weights = u[:, self.direction]
        return Hyperparameters(
            full=value[:, self.FULL],
            noise=value[:, self.NOISE],
            pair=value[:, self.PAIR],
            length=value[:, self.length],
            additive=value[:, self.additive],
            direction=self.scale[self.direction] * weights * weights.abs(),
        )

    def without_direction(self) -> HyperparameterPrior:
        """The same prior without a direction."""
        scales = self.scale.clone()
        scales[self.direction] = 0.0
        return replace(self, scale=scales)

    def with_noise(self, loc: float, scale: float) -> HyperparameterPrior:
        """The same prior with another mean and scale of the logarithm of the noise variance."""
        means = self.loc.clone()
        scales = self.scale.clone()
        means[self.NOISE] = loc
        scales[self.NOISE] = scale
        return replace(self, loc=means, scale=scales)


@dataclass(frozen=True)
class Hyperparameters:
    """A batch of `s` hyperparameter vectors.

    `full`, `noise` and `pair` are `s`, `length` and `additive` are `s x d`, `direction` is
    `s x k`.
    """

    full: Tensor
    noise: Tensor
    pair: Tensor
    length: Tensor
    additive: Tensor
    direction: Tensor


def _scaled(
    features: Features, hyper: Hyperparameters, prior: HyperparameterPrior
) -> tuple[Tensor, Tensor]:
    """`z / l` and the projection (`s x n x (c + 1)`), and `phi * sqrt(v)` (`s x n x f`)."""
    along = hyper.direction @ features.z[:, prior.numbers].T
    z = torch.cat([features.z / hyper.length[:, None, prior.z_group], along[:, :, None]], 2)
    phi = features.phi * hyper.additive[:, None, prior.phi_group].sqrt()
    return z, phi


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """`s x n x m` squared Euclidean distances."""
    inner = torch.bmm(a, b.transpose(1, 2))
    total = (a * a).sum(-1)[:, :, None] + (b * b).sum(-1)[:, None, :]
    return inner.mul_(-2.0).add_(total).clamp_(min=0.0)


def cross(
    left: Features, right: Features, hyper: Hyperparameters, prior: HyperparameterPrior
) -> Tensor:
    """Noise-free covariances `s x n x m` between two sets of configurations."""
    z_left, phi_left = _scaled(left, hyper, prior)
    z_right, phi_right = _scaled(right, hyper, prior)
    scaled = _squared_distances(z_left, z_right).sqrt_().mul_(math.sqrt(5.0))
    matern = torch.exp(-scaled).mul_((scaled * scaled).div_(3.0).add_(scaled).add_(1.0))
    matern.mul_(hyper.full[:, None, None]).add_(_common(left, right))
    main = torch.bmm(phi_left, phi_right.transpose(1, 2))
    return matern.add_(main).add_(main.square().mul_(hyper.pair[:, None, None]))


def _common(left: Features, right: Features) -> Tensor:
    """`n x m` covariances of the constant and the trend, which no hyperparameter changes."""
    return torch.addmm(left.trend.new_tensor(1.0), left.trend, right.trend.T)


def diagonal(features: Features, hyper: Hyperparameters, prior: HyperparameterPrior) -> Tensor:
    """Noise-free prior variances, `s x n`."""
    phi = (features.phi * features.phi) @ hyper.additive[:, prior.phi_group].T
    common = 1.0 + (features.trend * features.trend).sum(1)
    return hyper.full[:, None] + common + phi.T * (1.0 + hyper.pair[:, None] * phi.T)


def log_posterior(
    u: Tensor, features: Features, y: Tensor, prior: HyperparameterPrior
) -> tuple[Tensor, Tensor]:
    """Log marginal likelihood plus log prior of `u` (`s x p`), up to a constant, and its gradient.

    A vector gets -inf and a zero gradient if its covariance is not positive definite.

    Args:
        y: `n`, targets.
    """
    hyper = prior.values(u)
    z, phi = _scaled(features, hyper, prior)
    scaled = _squared_distances(z, z).sqrt_().mul_(math.sqrt(5.0))
    decay = torch.exp(-scaled).mul_(hyper.full[:, None, None])
    matern = decay * ((scaled * scaled).div_(3.0).add_(scaled).add_(1.0))
    main = torch.bmm(phi, phi.transpose(1, 2))
    covariance = torch.addcmul(matern + main, main, main * hyper.pair[:, None, None]).add_(
        _common(features, features)
    )
    covariance.diagonal(dim1=1, dim2=2).add_(hyper.noise[:, None] / features.runs + JITTER)
    factor, info = torch.linalg.cholesky_ex(covariance)
    failed = (info != 0) | ~torch.isfinite(factor).all(-1).all(-1)
    if bool(failed.any()):
        factor[failed] = torch.eye(len(y), dtype=y.dtype)
    inverse = torch.cholesky_inverse(factor)
    residual = y - features.mean
    alpha = inverse @ residual
    value = -0.5 * (alpha * residual).sum(-1) - factor.diagonal(dim1=1, dim2=2).log().sum(-1)
    outer = 0.5 * (alpha[:, :, None] * alpha[:, None, :] - inverse)  # d value / d covariance
    gradient = torch.empty_like(u)
    gradient[:, prior.FULL] = (outer * matern).sum((1, 2))
    own = outer.diagonal(dim1=1, dim2=2) / features.runs
    gradient[:, prior.NOISE] = hyper.noise * own.sum(-1)
    gradient[:, prior.PAIR] = hyper.pair * (outer * main.square()).sum((1, 2))
    d = prior.num_parameters
    c = len(prior.z_group)
    decay = decay.mul_(scaled.add_(1.0)).mul_(5.0 / 6.0)
    slope = outer * decay  # minus d value / d squared distance
    pulled = 4.0 * (slope.sum(-1)[:, :, None] * z - torch.bmm(slope, z))  # minus d value / d z
    gradient[:, prior.length] = _by_group((z * pulled)[:, :, :c].sum(1), prior.z_group, d)
    gradient[:, prior.direction] = (
        -pulled[:, :, c] @ features.z[:, prior.numbers] * 2.0 * u[:, prior.direction].abs()
    )
    outer = outer.mul_(main.mul_(2.0 * hyper.pair[:, None, None]).add_(1.0))
    gradient[:, prior.additive] = _by_group(
        (phi * torch.bmm(outer, phi)).sum(1), prior.phi_group, d
    )
    value = value - 0.5 * (u * u).sum(-1)
    gradient = gradient * prior.scale - u
    bad = failed | ~torch.isfinite(value) | ~torch.isfinite(gradient).all(-1)
    return value.masked_fill(bad, -math.inf), gradient.masked_fill(bad[:, None], 0.0)


def _by_group(columns: Tensor, group: Tensor, size: int) -> Tensor:
    return torch.zeros(columns.shape[0], size, dtype=columns.dtype).index_add_(1, group, columns)
