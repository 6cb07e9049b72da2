"""The surrogate's covariance, in closed form with its gradient, for a batch of hyperparameters.

    k(x, x') = v_full * Matern52(|z(x) - z(x')| / l) + A(x, x') + v_pair * A(x, x')^2 + v_mean,
    A(x, x') = sum_j v_j * phi_j(x) . phi_j(x')

plus the noise variance on the diagonal. The mean is `v_bowl * bowl(x)`: losses are usually lower
inside a range than at its ends. Without it the first suggestions are the uncertain corners.

`z` embeds a configuration so that one matrix product gives all distances. For a goal it has one
more coordinate, the projection w . x of the numbers on a learned direction (the factor analysis
distance of Rasmussen and Williams, "Gaussian processes for machine learning", 2006, 5.1). Settings
such as rate and batch size often compensate each other, and good ones form a narrow ridge.
A is the additive part, one main effect for each parameter. Its square has all pairwise interactions
(Duvenaud et al., "Additive Gaussian processes", 2011). Both extrapolate from few trials.

All other hyperparameters are logarithms of positive numbers with a normal prior. They are kept
standardised, `u = (log value - prior mean) / prior scale`, so that the prior of `u` is N(0, I) for
every space. w is a multiple of u |u|, which is mostly near 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

SQRT5 = math.sqrt(5.0)
MEAN_VARIANCE = 1.0  # prior variance of the constant in the function
JITTER = 1e-8  # added to the noise variance


@dataclass(frozen=True)
class Features:
    """Embedded configurations.

    Args:
        z: `n x c`, coordinates of the full kernel.
        phi: `n x f`, basis functions of the additive part.
        bowl: `n`, the mean function at scale 1.
    """

    z: Tensor
    phi: Tensor
    bowl: Tensor

    def __len__(self) -> int:
        return self.z.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Features:
        return Features(self.z[rows], self.phi[rows], self.bowl[rows])

    def with_more(self, other: Features) -> Features:
        """Both, one after the other."""
        pairs = ((self.z, other.z), (self.phi, other.phi), (self.bowl, other.bowl))
        return Features(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True)
class HyperparameterPrior:
    """Normal priors of the logarithms of the hyperparameters, and the parameter of each column.

    Args:
        loc: `p`, means, in the order full variance, noise variance, pair variance, scale of the
            bowl, lengthscales (d), additive variances (d), direction (k).
        scale: `p`, standard deviations in the same order.
        z_group: `c`, the parameter of each coordinate.
        phi_group: `f`, the parameter of each basis function.
        num_parameters: d.
        numbers: `k`, the columns of z that the direction combines.
    """

    loc: Tensor
    scale: Tensor
    z_group: Tensor
    phi_group: Tensor
    num_parameters: int
    numbers: Tensor

    def values(self, u: Tensor) -> Hyperparameters:
        """Hyperparameters of standardised vectors `u` (`s x p`)."""
        u = u.clamp(-6.0, 6.0)
        d = self.num_parameters
        split = 4 + 2 * d
        value = torch.exp(self.loc[:split] + self.scale[:split] * u[:, :split])
        full, noise, pair, bowl = value[:, :4].unbind(1)
        direction = self.scale[split:] * u[:, split:] * u[:, split:].abs()
        return Hyperparameters(
            full, noise, pair, bowl, value[:, 4 : 4 + d], value[:, 4 + d :], direction
        )

    def without_direction(self) -> HyperparameterPrior:
        """The same prior without a direction."""
        scales = self.scale.clone()
        scales[4 + 2 * self.num_parameters :] = 0.0
        return replace(self, scale=scales)

    def with_noise(self, loc: float, scale: float) -> HyperparameterPrior:
        """The same prior with another mean and scale of the logarithm of the noise variance."""
        means = self.loc.clone()
        scales = self.scale.clone()
        means[1] = loc
        scales[1] = scale
        return replace(self, loc=means, scale=scales)


@dataclass(frozen=True)
class Hyperparameters:
    """A batch of `s` hyperparameter vectors.

    `full`, `noise`, `pair` and `bowl` are `s`, `length` and `additive` are `s x d`, `direction` is
    `s x k`.
    """

    full: Tensor
    noise: Tensor
    pair: Tensor
    bowl: Tensor
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
    scaled = _squared_distances(z_left, z_right).sqrt_().mul_(SQRT5)
    matern = torch.exp(-scaled).mul_((scaled * scaled).div_(3.0).add_(scaled).add_(1.0))
    matern.mul_(hyper.full[:, None, None]).add_(MEAN_VARIANCE)
    main = torch.bmm(phi_left, phi_right.transpose(1, 2))
    return matern.add_(main).add_(main.square().mul_(hyper.pair[:, None, None]))


def diagonal(features: Features, hyper: Hyperparameters, prior: HyperparameterPrior) -> Tensor:
    """Noise-free prior variances, `s x n`."""
    phi = (features.phi * features.phi) @ hyper.additive[:, prior.phi_group].T
    return hyper.full[:, None] + MEAN_VARIANCE + phi.T * (1.0 + hyper.pair[:, None] * phi.T)


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
    scaled = _squared_distances(z, z).sqrt_().mul_(SQRT5)
    decay = torch.exp(-scaled).mul_(hyper.full[:, None, None])
    matern = decay * ((scaled * scaled).div_(3.0).add_(scaled).add_(1.0))
    main = torch.bmm(phi, phi.transpose(1, 2))
    covariance = torch.addcmul(matern + main, main, main * hyper.pair[:, None, None]).add_(
        MEAN_VARIANCE
    )
    covariance.diagonal(dim1=1, dim2=2).add_(hyper.noise[:, None] + JITTER)
    factor, info = torch.linalg.cholesky_ex(covariance)
    failed = (info != 0) | ~torch.isfinite(factor).all(-1).all(-1)
    if bool(failed.any()):
        factor[failed] = torch.eye(len(y), dtype=y.dtype)
    inverse = torch.cholesky_inverse(factor)
    residual = y - hyper.bowl[:, None] * features.bowl
    alpha = (inverse @ residual[:, :, None])[:, :, 0]
    value = -0.5 * (alpha * residual).sum(-1) - factor.diagonal(dim1=1, dim2=2).log().sum(-1)
    outer = 0.5 * (alpha[:, :, None] * alpha[:, None, :] - inverse)  # d value / d covariance
    gradient = torch.empty_like(u)
    gradient[:, 0] = (outer * matern).sum((1, 2))
    gradient[:, 1] = hyper.noise * outer.diagonal(dim1=1, dim2=2).sum(-1)
    gradient[:, 2] = hyper.pair * (outer * main.square()).sum((1, 2))
    gradient[:, 3] = hyper.bowl * (alpha @ features.bowl)
    d = prior.num_parameters
    c = len(prior.z_group)
    decay = decay.mul_(scaled.add_(1.0)).mul_(5.0 / 6.0)
    slope = outer * decay  # minus d value / d squared distance
    pulled = 4.0 * (slope.sum(-1)[:, :, None] * z - torch.bmm(slope, z))  # minus d value / d z
    gradient[:, 4 : 4 + d] = _by_group((z * pulled)[:, :, :c].sum(1), prior.z_group, d)
    gradient[:, 4 + 2 * d :] = (
        -pulled[:, :, c] @ features.z[:, prior.numbers] * 2.0 * u[:, 4 + 2 * d :].abs()
    )
    outer = outer.mul_(main.mul_(2.0 * hyper.pair[:, None, None]).add_(1.0))
    gradient[:, 4 + d : 4 + 2 * d] = _by_group(
        (phi * torch.bmm(outer, phi)).sum(1), prior.phi_group, d
    )
    value = value - 0.5 * (u * u).sum(-1)
    gradient = gradient * prior.scale - u
    bad = failed | ~torch.isfinite(value) | ~torch.isfinite(gradient).all(-1)
    return value.masked_fill(bad, -math.inf), gradient.masked_fill(bad[:, None], 0.0)


def _by_group(columns: Tensor, group: Tensor, size: int) -> Tensor:
    return torch.zeros(columns.shape[0], size, dtype=columns.dtype).index_add_(1, group, columns)
