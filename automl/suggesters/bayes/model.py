"""One surrogate: a Gaussian process with an ensemble of hyperparameters, as a BoTorch model.

With a single most likely vector, a search can get stuck if it takes a relevant parameter for an
irrelevant one. Each vector of the ensemble is a draw of the prior that climbs towards the likeliest
one, while a prior around the draw holds it back (Pearce et al., "Uncertainty in neural networks:
approximately Bayesian ensembling", 2020): the vectors differ in what the trials leave open. With
a common prior all of them end in the same vector; that is left to models of success, seconds and
bytes, which have effects and few vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultivariateNormal
from numpy.typing import NDArray
from torch import Tensor

from search_spaces import Space

from .kernel import NEARLY_EXACT, NOISE, Array, Encoder, EnsembleMatern, affecting

JITTER = 1e-7  # added to the noise variance
CHUNK = 128  # candidates at once: their covariances stay in the processor's cache
STEPS = 50  # of gradient ascent
MAX_CONDITIONED = 300
MAX_FITTED = 128
MEMBERS = ((80, 8), (160, 6), (math.inf, 4))  # by trials: with more, vectors differ less
EVERY = 40  # trials up to which a goal's hyperparameters are learned anew from each
SELDOM = 10  # the same of other models
MAX_KEPT = 8  # answers that a fitter remembers
KNEE = 2.0  # distance above the median, in that of the best below it
TAIL = 0.5  # length of the tail above the knee: a loss of 1e12 is about 2 above it
LIMIT = 1e100  # squares of larger values overflow


class EnsembleGP(Model):  # type: ignore[misc]
    """The posterior given `n` trials under K hyperparameter vectors.

    Args:
        kernel: of K vectors.
        X: `n x c` coordinates of the trials.
        y: their targets, `n` (or `K x n`).
    """

    _is_ensemble = True

    def __init__(self, kernel: EnsembleMatern, X: Tensor, y: Tensor) -> None:
        super().__init__()
        self.kernel, self.X = kernel, X
        self.y = y.expand(len(kernel.raw), -1)
        with torch.no_grad():
            covariance, noise = kernel.forward(X, X), kernel.noise[:, :, None]
            for jitter in (JITTER * 10.0**i for i in range(8)):
                whole = covariance + (noise + jitter) * torch.eye(len(X), dtype=X.dtype)
                factor, info = torch.linalg.cholesky_ex(whole)
                if not info.any():
                    break
            identity = torch.eye(len(X), dtype=X.dtype).expand_as(factor)
            self.whiten = torch.linalg.solve_triangular(factor, identity, upper=False)
            self.alpha = self.whiten.mT @ (self.whiten @ self.y[:, :, None])

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size([len(self.y)])

    @torch.no_grad()
    def joint(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Means `... x K x m` and covariances `... x K x m x m` at `... x m x c` coordinates."""
        Z = Z[..., None, :, :]
        k = self.kernel.forward(Z, self.X)
        white = k @ self.whiten.mT
        return (k @ self.alpha)[..., 0], self.kernel.forward(Z, Z) - white @ white.mT

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> GaussianMixturePosterior:
        """BoTorch's posterior at `b x q x c` coordinates."""
        mean, covariance = self.joint(X)
        noise = self.kernel.noise.detach() if observation_noise is True else 0.0
        jitter = torch.zeros_like(mean) + JITTER + noise
        found = GaussianMixturePosterior(
            MultivariateNormal(mean, covariance + torch.diag_embed(jitter))
        )
        return found if posterior_transform is None else posterior_transform(found)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **_: Any) -> EnsembleGP:
        """Condition on `w x c` further coordinates with targets `K x w` (or `w`) too."""
        y = torch.cat([self.y, Y.expand(len(self.y), -1)], 1)
        return EnsembleGP(self.kernel, torch.cat([self.X, X]), y)

    def moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the noise-free function at `m x c` coordinates, `K x m` each."""
        return self._moments(Z)[:2]

    def improvement(self, Z: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(Z) - f(X[index]), `K x m` each: both values are uncertain.

        Args:
            index: `K`, the trial that each hyperparameter vector compares with.
        """
        members = torch.arange(len(index))
        mean_at, variance_at, _, white_at = (of[members, index] for of in self._at_trials)
        mean, variance, k, white = self._moments(Z)
        both = k[members, :, index] - (white @ white_at[:, :, None])[:, :, 0]
        variance = variance + variance_at[:, None] - 2.0 * both
        return mean - mean_at[:, None], variance.clamp(min=1e-12)

    @cached_property
    def _at_trials(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self._moments(self.X)

    def draw(self, Z: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Functions drawn, each under a random vector, at `m x c` coordinates, `count x m`."""
        chosen = torch.randint(len(self.y), (count,), generator=generator)
        found = torch.empty((count, len(Z)), dtype=Z.dtype)
        for one in sorted(set(chosen.tolist())):
            raw, rows = self.kernel.raw.detach()[[one]], torch.nonzero(chosen == one)[:, 0]
            kernel = EnsembleMatern(self.kernel.encoder, raw, self.kernel.noise_prior)
            single = EnsembleGP(kernel, self.X, self.y[one])
            found[rows] = single.draws(Z, len(rows), generator)[0]
        return found

    def draws(self, Z: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Functions drawn under each vector, at `m x c` coordinates, `K x count x m`."""
        mean, covariance = self.joint(Z)
        factor, _ = torch.linalg.cholesky_ex(covariance + 1e-6 * torch.eye(len(Z)))
        shape = (len(mean), count, len(Z))
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        drawn: Tensor = mean[:, None, :] + noise @ factor.mT
        return drawn

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means and variances (with noise) of each target given all others, `K x n`.

        Closed form of Sundararajan and Keerthi (2001).
        """
        precision = (self.whiten * self.whiten).sum(1)
        return self.y - self.alpha[..., 0] / precision, 1.0 / precision

    @torch.no_grad()
    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k = self.kernel.forward(Z, self.X)
        white = k @ self.whiten.mT
        variance = self.kernel.forward(Z, Z, diag=True) - white.square().sum(-1)
        return (k @ self.alpha)[..., 0], variance.clamp(min=1e-12), k, white


def most_likely(kernel: EnsembleMatern, X: Tensor, y: Tensor) -> Tensor:
    """The likeliest vectors that gradient ascent from those of the kernel meets, `K x p`.

    It is Adam (Kingma and Ba, 2015) with a falling rate, all vectors at once.
    """
    raw = kernel.raw
    best: Tensor = raw.detach().clone()
    best_value = torch.full((len(raw),), -math.inf, dtype=X.dtype)
    adam = torch.optim.Adam([raw], betas=(0.8, 0.95), eps=1e-6, maximize=True)
    for step in range(1, STEPS + 1):
        value = log_posterior(kernel, X, y)
        adam.zero_grad()
        value.sum().backward()  # type: ignore[no-untyped-call]
        raw.grad.nan_to_num_()
        better = value.detach() > best_value
        best = torch.where(better[:, None], raw.detach(), best)
        best_value = torch.where(better, value.detach(), best_value)
        adam.param_groups[0]["lr"] = 0.3 * (1 - 0.7 * step / STEPS)
        adam.step()
    return best


def log_posterior(kernel: EnsembleMatern, X: Tensor, y: Tensor) -> Tensor:
    """Log density of each hyperparameter vector given targets `y` (`n`), `K`, up to a constant."""
    noise = (kernel.noise + JITTER)[:, :, None] * torch.eye(len(X), dtype=X.dtype)
    factor, info = torch.linalg.cholesky_ex(kernel.forward(X, X) + noise)
    right = y[:, None].expand(len(factor), -1, -1)
    white = torch.linalg.solve_triangular(factor, right, upper=False)
    value: Tensor = -0.5 * white.square().sum((1, 2))
    value = value - factor.diagonal(dim1=1, dim2=2).log().sum(1)
    for _, module, prior, closure, _ in kernel.named_priors():
        value = value + prior.log_prob(closure(module)).sum(1)
    return value.masked_fill(info != 0, -1e6)


class Knee(OutcomeTransform):  # type: ignore[misc]
    """Standardises z = (y - median) / (median - best), with a double logarithm above `KNEE`.

    A loss of 1e12 is then hardly further away than one of 1e4: with one logarithm it would leave
    the good ones hardly apart. Near the best the scale is linear, so that expected improvement
    keeps its meaning.

    Args:
        values: `n` finite losses, n >= 1, from which the centre and the scales are learned.
    """

    def __init__(self, values: Array) -> None:
        super().__init__()
        values = np.clip(values, -LIMIT, LIMIT)
        self.median, best = float(np.median(values)), float(values.min())
        spread = self.median - best
        if not spread > 1e-12 * max(abs(self.median), abs(best), 1e-300):
            spread = float(np.ptp(values)) or 1.0
        self.spread, self.mean, self.scale = spread, 0.0, 1.0
        raw, _ = self(torch.from_numpy(values))
        self.mean, deviation = float(raw.mean()), float(raw.std(correction=0))
        self.scale = deviation if deviation > 1e-9 else 1.0

    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The transformed losses; noise is learned after the transform."""
        z = (Y.clamp(-LIMIT, LIMIT) - self.median) / self.spread
        above = torch.log1p((z.clamp(-LIMIT, LIMIT) - KNEE).clamp(min=0.0))
        z = z.clamp(-LIMIT, KNEE) + TAIL * torch.log1p(above / TAIL)
        return (z - self.mean) / self.scale, Yvar

    def untransform(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The losses before the transform."""
        z = Y * self.scale + self.mean
        above = TAIL * torch.expm1(((z - KNEE) / TAIL).clamp(0.0, 8.0))
        z = z.clamp(max=KNEE) + torch.expm1(above.clamp(max=600.0))
        return z * self.spread + self.median, Yvar


def excess_scores(excess: Array, known: Array) -> Array:
    """How far a bound is exceeded, linear near the bound and logarithmic far from it; 0 stays 0.

    Args:
        excess: `n`, metric less bound.
        known: the excesses from which the scale is learned.
    """
    excess, known = np.clip(excess, -LIMIT, LIMIT), np.clip(known, -LIMIT, LIMIT)
    scale = float(np.median(np.abs(known))) or float(np.abs(known).max()) or 1.0
    spread = max(float(np.sqrt(np.mean(np.arcsinh(known / scale) ** 2))), 1e-9)
    return np.asarray(np.arcsinh(excess / scale) / spread, dtype=np.float64)


def milestone(count: int, every: int = EVERY) -> int:
    """How many of `count` trials hyperparameters are learned from; grows by steps.

    Args:
        every: trials up to which they are learned anew from each.
    """
    step = max(1, 1 << int(math.log2(max(count, every) / every)))
    return count - count % step


def settled(values: Array) -> Array:
    """The values up to the milestone. Scales are learned from them, so that they stay as well."""
    return values[: milestone(len(values))]


def best_and_random(values: Array, size: int, seed: int) -> NDArray[np.intp]:
    """At most `size` rows in order: one half the best, the other half random."""
    if len(values) <= size:
        return np.arange(len(values))
    order = np.argsort(values, kind="stable")
    rest = np.random.default_rng([seed, 1]).permutation(order[size // 2 :])[: size - size // 2]
    return np.sort(np.concatenate([order[: size // 2], rest]))


@dataclass
class Fitter:
    """Fits one surrogate: hyperparameters from part of the data, conditioned on part of it.

    Both parts are bounded. The first grows in steps, so that hyperparameters stay for some trials.
    The answer depends only on the data and the seed, never on earlier calls.

    Args:
        encoder: of configurations.
        seed: of the vectors from which the ascent begins.
        noise: location and scale of the log noise variance.
        members: most hyperparameter vectors.
    """

    encoder: Encoder
    seed: int
    noise: tuple[float, float] = NOISE
    members: int = MEMBERS[0][1]
    memory: dict[bytes, Tensor] = field(default_factory=dict)

    @classmethod
    def of_aspects(
        cls,
        space: Space,
        aspects: frozenset[str],
        seed: int,
        *,
        noise: tuple[float, float] | None = None,
        members: int = MEMBERS[0][1],
    ) -> Fitter:
        """The fitter of a metric with these aspects, over the parameters that affect it.

        Args:
            noise: by default that of the aspects. Unless it is that of quality, the model has main
                effects.
        """
        usual = NOISE if "quality" in aspects else NEARLY_EXACT
        effects = noise is not None or "quality" not in aspects
        encoder = Encoder(space, affecting(space, aspects), effects=effects)
        return cls(encoder, seed, noise or usual, members)

    def fit(
        self, unit: Array, y: Array, order: Array | None = None
    ) -> tuple[EnsembleGP, NDArray[np.intp]]:
        """Condition on at most `MAX_CONDITIONED` of the standardised targets `y`.

        Args:
            unit: `n x d` configurations.
            order: the smallest are kept first, by default those of `y`.

        Returns:
            The ensemble, and the rows that it is conditioned on, ascending.
        """
        order = y if order is None else order
        rows = best_and_random(order, MAX_CONDITIONED, self.seed)
        some = slice(0, milestone(len(y), SELDOM if self.encoder.effects else EVERY))
        kernel = self.kernel(unit[some], y[some], order[some])
        return EnsembleGP(kernel, self.encoder(unit[rows]), torch.from_numpy(y[rows])), rows

    def kernel(self, unit: Array, y: Array, order: Array) -> EnsembleMatern:
        """The kernel with the likeliest hyperparameters; see `fit`."""
        rows = best_and_random(order, MAX_FITTED, self.seed)
        unit, values = unit[rows], y[rows]
        key = unit.tobytes() + values.tobytes()
        if key not in self.memory:
            most = next(size for trials, size in MEMBERS if len(y) <= trials)
            generator = torch.Generator().manual_seed(1000 * self.seed + len(y))
            d = len(self.encoder.sizes)
            shape = (min(most, self.members), 3 + 2 * d if self.encoder.effects else 2 + d)
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            kernel = (
                EnsembleMatern(self.encoder, 0.5 * drawn, self.noise)
                if self.encoder.effects
                else EnsembleMatern(self.encoder, drawn, self.noise, anchors=drawn.clone())
            )
            if len(self.memory) == MAX_KEPT:
                self.memory.pop(next(iter(self.memory)))
            X, targets = self.encoder(unit), torch.from_numpy(values)
            self.memory[key] = most_likely(kernel, X, targets)
        return EnsembleMatern(self.encoder, self.memory[key], self.noise)
