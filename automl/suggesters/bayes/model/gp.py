"""A Gaussian process with an ensemble of hyperparameters, sampled by Hamiltonian Monte Carlo.

With a single most likely vector, a search can get stuck if it takes a relevant parameter for an
irrelevant one. Samples of the posterior avoid that (Snoek et al., "Practical Bayesian
optimization", 2012).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from .kernel import (
    JITTER,
    Features,
    HyperparameterPrior,
    Hyperparameters,
    cross,
    diagonal,
    log_posterior,
)

MAX_SKETCHED = 3  # hyperparameter vectors of a sketch
CHUNK = 64  # candidates at once: their covariances stay in the processor's cache


@dataclass(frozen=True)
class Sampling:
    """How the ensemble is drawn: gradient ascent from the prior, then Hamiltonian trajectories.

    Args:
        num_particles: number of chains.
        ascent: steps of gradient ascent.
        trajectories: of each chain.
        leapfrogs: steps of a trajectory.
    """

    num_particles: int = 10
    ascent: int = 40
    trajectories: int = 2
    leapfrogs: int = 4


def sample_hyperparameters(
    features: Features,
    y: Tensor,
    prior: HyperparameterPrior,
    sampling: Sampling,
    generator: torch.Generator,
) -> Tensor:
    """Draw `s x p` standardised hyperparameters from their posterior given targets `y` (`n`)."""
    shape = (sampling.num_particles, prior.loc.shape[0])
    u = 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    u = _ascend(u, features, y, prior, sampling.ascent)
    value, gradient = log_posterior(u, features, y, prior)
    step = torch.full((shape[0],), 0.15, dtype=torch.float64)
    for _ in range(sampling.trajectories):
        momentum = torch.randn(shape, generator=generator, dtype=torch.float64)
        uniform = torch.rand(shape[0], generator=generator, dtype=torch.float64)
        energy = value - 0.5 * (momentum * momentum).sum(-1)
        new, new_value, new_gradient = u, value, gradient
        for _ in range(sampling.leapfrogs):
            momentum = momentum + 0.5 * step[:, None] * new_gradient
            new = new + step[:, None] * momentum
            new_value, new_gradient = log_posterior(new, features, y, prior)
            momentum = momentum + 0.5 * step[:, None] * new_gradient
        gain = new_value - 0.5 * (momentum * momentum).sum(-1) - energy
        accept = uniform.log() < torch.nan_to_num(gain, nan=-math.inf)
        u = torch.where(accept[:, None], new, u)
        value = torch.where(accept, new_value, value)
        gradient = torch.where(accept[:, None], new_gradient, gradient)
        step = torch.where(accept, step * 1.2, step * 0.5)
    return u


def _ascend(
    u: Tensor, features: Features, y: Tensor, prior: HyperparameterPrior, steps: int
) -> Tensor:
    """Adam (Kingma and Ba, 2015) towards the nearest mode; keeps the best vector of each chain."""
    best = u
    best_value = torch.full(u.shape[:1], -math.inf, dtype=u.dtype)
    first = torch.zeros_like(u)
    second = torch.zeros_like(u)
    for i in range(1, steps + 1):
        value, gradient = log_posterior(u, features, y, prior)
        better = value > best_value
        best = torch.where(better[:, None], u, best)
        best_value = torch.where(better, value, best_value)
        first = 0.8 * first + 0.2 * gradient
        second = 0.95 * second + 0.05 * gradient * gradient
        rate = 0.3 * (1 - 0.7 * i / steps)
        u = u + rate * (first / (1 - 0.8**i)) / ((second / (1 - 0.95**i)).sqrt() + 1e-6)
    return best


@dataclass(frozen=True)
class Ensemble:
    """The posterior given `n` trials under `s` hyperparameter vectors.

    Args:
        features: of the trials.
        y: their targets, `n` (or `s x n`), in the scale of the fit.
        prior: of the hyperparameters.
        u: `s x p`, standardised hyperparameters.
        hyper: the same as positive values.
        whiten: `s x n x n`, inverse of the lower Cholesky factor of the covariance.
        alpha: `s x n`, inverse covariance times the residuals (targets less mean function).
    """

    features: Features
    y: Tensor
    prior: HyperparameterPrior
    u: Tensor
    hyper: Hyperparameters
    whiten: Tensor
    alpha: Tensor

    @classmethod
    def condition(
        cls, features: Features, y: Tensor, prior: HyperparameterPrior, u: Tensor
    ) -> Ensemble:
        """Condition on observations; raises the diagonal until the Cholesky factors exist."""
        hyper = prior.values(u)
        covariance = cross(features, features, hyper, prior)
        covariance.diagonal(dim1=1, dim2=2).add_(hyper.noise[:, None] / features.runs + JITTER)
        factor, info = torch.linalg.cholesky_ex(covariance)
        jitter = JITTER
        while bool((info != 0).any()):
            covariance.diagonal(dim1=1, dim2=2).add_(jitter)
            factor, info = torch.linalg.cholesky_ex(covariance)
            jitter *= 10
        identity = torch.eye(len(features), dtype=torch.float64).expand_as(factor)
        whiten = torch.linalg.solve_triangular(factor, identity, upper=False)
        residual = (y - features.mean).expand(len(u), -1)
        alpha = (whiten.transpose(1, 2) @ (whiten @ residual[:, :, None]))[:, :, 0]
        return cls(features, y, prior, u, hyper, whiten, alpha)

    def sketch(self) -> Ensemble:
        """A cheap version with at most three vectors, to pre-select candidates."""
        count = min(MAX_SKETCHED, (len(self.u) + 1) // 2)
        hyper = Hyperparameters(*(getattr(self.hyper, f.name)[:count] for f in fields(self.hyper)))
        return replace(
            self,
            y=self.y[:count] if self.y.dim() > 1 else self.y,
            u=self.u[:count],
            hyper=hyper,
            whiten=self.whiten[:count],
            alpha=self.alpha[:count],
        )

    def predict(self, candidates: Features) -> tuple[Tensor, Tensor]:
        """Means and variances of the noise-free function, `s x m` each."""
        parts = [self._moments(part)[:2] for part in chunks(candidates)]
        return torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts], 1)

    def mean(self, candidates: Features) -> Tensor:
        """Mean of the ensemble's means, `m`; cheaper than `predict`."""
        parts = []
        for part in chunks(candidates):
            k = cross(part, self.features, self.hyper, self.prior)
            parts.append((k @ self.alpha[:, :, None])[:, :, 0] + part.mean)
        return torch.cat(parts, 1).mean(0)

    def improvement(self, candidates: Features, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(observed[index]) - f(candidate), `s x m` each.

        Args:
            index: `s`, the observed configuration that each hyperparameter vector compares with.
        """
        chosen = torch.arange(len(index)), slice(None), index
        column = cross(self.features, self.features, self.hyper, self.prior)[chosen]  # s x n
        white_column = (self.whiten @ column[:, :, None])[:, :, 0]
        own = diagonal(self.features, self.hyper, self.prior)[torch.arange(len(index)), index]
        variance_at = own - (white_column * white_column).sum(-1)
        mean_at = (column * self.alpha).sum(-1) + self.features.mean[index]
        means = []
        variances = []
        for part in chunks(candidates):
            mean, variance, k, white = self._moments(part)
            both = k[chosen] - (white @ white_column[:, :, None])[:, :, 0]
            means.append(mean_at[:, None] - mean)
            variances.append(variance + variance_at[:, None] - 2 * both)
        return torch.cat(means, 1), torch.cat(variances, 1).clamp_(min=1e-14)

    def fantasize(self, pending: Features) -> Ensemble:
        """Condition on pending configurations too, each at the value that a vector predicts."""
        mean, _ = self.predict(pending)
        targets = torch.cat([self.y.expand(mean.shape[0], -1), mean], 1)
        return Ensemble.condition(self.features.with_more(pending), targets, self.prior, self.u)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (with noise) of each target given all others, `s x n`.

        Closed form of Sundararajan and Keerthi (2001).
        """
        precision = (self.whiten * self.whiten).sum(1)  # diagonal of the covariance's inverse
        return self.y - self.alpha / precision, 1.0 / precision

    def _moments(self, part: Features) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k = cross(part, self.features, self.hyper, self.prior)
        white = torch.bmm(k, self.whiten.transpose(1, 2))
        variance = diagonal(part, self.hyper, self.prior) - (white * white).sum(-1)
        mean = (k @ self.alpha[:, :, None])[:, :, 0] + part.mean
        return mean, variance.clamp_(min=1e-14), k, white


def chunks(features: Features) -> Iterator[Features]:
    """Parts that fit into the processor's cache."""
    for start in range(0, len(features), CHUNK):
        yield features[slice(start, start + CHUNK)]
