"""Configurations as inputs of a Gaussian process, and the kernel of them.

    k(x, x') = s * Matern52(|z - z'| / l) + 1,    plus the noise variance on the diagonal.

Models of success, seconds and bytes add main effects, A = sum_j v_j phi_j(x) . phi_j(x'), and all
their pairwise interactions, A^2 (Duvenaud et al., "Additive Gaussian processes", 2011), which
extrapolate from few trials. Models of goals do not: searches were worse with them.

Every hyperparameter is exp(location + scale * raw), and the prior of `raw` is N(0, 1). So each has
a log-normal prior, and the most likely vector is sought in logarithms. The location of the log
lengthscales rises with the logarithm of the number of parameters (Hvarfner et al., "Vanilla
Bayesian optimization performs great in high dimensions", 2024).
"""

import math
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import NormalPrior
from numpy.typing import NDArray
from torch import Tensor

from search_spaces import Choice, Space

Array = NDArray[np.float64]
QUALITY: Final = frozenset({"quality"})
SPEED: Final = frozenset({"speed"})
MEMORY: Final = frozenset({"memory"})
ALL: Final = QUALITY | SPEED | MEMORY
NOISE: Final = (-3.0, 2.5)  # location and scale of the log noise variance
NEARLY_EXACT: Final = (math.log(1e-4), 2.0)  # the same of seconds and bytes
NUMBER, OPTION = 0.5, 1.0  # lengthscales of one number and one choice alone


def affecting(space: Space, aspects: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that affect one of the aspects, and of their parents.

    All parameters if none affects them. Goals and constraints have the aspects of their metrics.
    """
    wanted = {name for name, p in space.parameters.items() if p.affects & aspects}
    for name in reversed(space.parameters):  # children before parents
        if name in wanted:
            wanted.update(space.parameters[name].when)
    return tuple(name for name in space.parameters if name in wanted) or tuple(space.parameters)


class Encoder:
    """Embeds unit-cube configurations (`Space.encode`, NaN if inactive) of one space.

    A number is one coordinate. An unordered choice of k is k coordinates, any two options being
    equally far apart. An inactive parameter sits in the middle of its range, so that configurations
    without it do not differ by it; its parent's value marks those that have it.

    Args:
        space: of the configurations.
        names: the parameters that affect the metric, all if None.
        extra: how many columns of numbers in [0, 1] follow the parameters.
        effects: whether basis functions of main effects follow the coordinates.

    Attributes:
        groups: `c`, the parameter of each coordinate; effect_groups: the same of basis functions.
        location: `d`, prior locations of the log lengthscales.
    """

    def __init__(
        self,
        space: Space,
        names: Collection[str] | None = None,
        extra: int = 0,
        *,
        effects: bool = False,
    ) -> None:
        every = list(space.parameters.values())
        rows = [i for i, p in enumerate(every) if names is None or p.name in names]
        self.space, self.names, self.extra, self.effects = space, names, extra, effects
        self.columns = rows + [len(every) + i for i in range(extra)]
        listed = [every[i] for i in rows]
        self.sizes = [
            len(p.choices) if isinstance(p, Choice) and not p.ordered else 0 for p in listed
        ] + [0] * extra
        self.groups = torch.tensor([j for j, k in enumerate(self.sizes) for _ in range(k or 1)])
        each = [j for j, k in enumerate(self.sizes) for _ in range(k or 4)]
        self.effect_groups = torch.tensor(each if effects else [], dtype=torch.long)
        some = np.random.default_rng(0).random((256, len(every)))
        active = np.isfinite(space.encode(space.decode(some)))[:, rows]
        num_active = max(1.0, float(active.sum(1).mean()) + extra)
        alone = [math.log(OPTION if size else NUMBER) for size in self.sizes]
        self.location = torch.tensor(alone, dtype=torch.float64) + 0.5 * math.log(num_active)
        if extra:  # these are known to matter
            self.location[-extra:] = math.log(NUMBER)

    def __call__(self, unit: Array) -> Tensor:
        """Coordinates `n x c` of `n x d` unit-cube configurations; `c + f` with main effects."""
        found, effects = [], []
        for column, size in zip(self.columns, self.sizes, strict=True):
            x = unit[:, column, None]
            active = ~np.isnan(x)
            x = np.where(active, x, 0.5)
            hot = (np.floor(x * size) == np.arange(size)) * active
            found.append(hot / math.sqrt(2.0) if size else x)
            if self.effects:
                effects.append((hot - 1.0 / size if size else _waves(x)) * active)
        return torch.from_numpy(np.concatenate([*found, *effects], 1))


class EnsembleMatern(Kernel):  # type: ignore[misc]
    """The kernel under K vectors of hyperparameters, a batch dimension.

    Args:
        encoder: of the configurations.
        raw: `K x p`, standardised hyperparameters: outputscale, noise, lengthscales; with main
            effects, the variance of interactions and those of the effects too.
        noise: location and scale of the log noise variance.
        anchors: `K x p`, the means of the priors of `raw`; by default 0.
    """

    def __init__(
        self,
        encoder: Encoder,
        raw: Tensor,
        noise: tuple[float, float] = NOISE,
        anchors: Tensor | None = None,
    ) -> None:
        super().__init__(batch_shape=raw.shape[:1])
        self.encoder, self.noise_prior = encoder, noise
        num_lengths = len(encoder.location)
        first = torch.tensor([0.0, noise[0]], dtype=torch.float64)
        more = torch.full((num_lengths + 1,), math.log(0.1), dtype=torch.float64)
        more[0] = 0.0
        self.location = torch.cat([first, encoder.location, more])[: raw.shape[1]]
        self.deviation = torch.ones_like(self.location)
        self.deviation[1], self.deviation[2 + num_lengths :] = noise[1], 2.0
        self.register_parameter("raw", torch.nn.Parameter(raw))
        means = torch.zeros_like(raw) if anchors is None else anchors
        self.register_prior("raw_prior", NormalPrior(means, torch.ones_like(raw)), "raw")

    @property
    def values(self) -> Tensor:
        """The hyperparameters as positive numbers, `K x p`."""
        return torch.exp(self.location + self.deviation * self.raw.clamp(-6.0, 6.0))

    @property
    def noise(self) -> Tensor:
        """The noise variances, `K x 1`."""
        return self.values[:, 1:2]

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        """Covariances `... x K x n x m` of coordinates `... x n x c` and `... x m x c`."""
        values, of, c = self.values, self.encoder, len(self.encoder.groups)
        length, scale = values[:, None, 2:][..., of.groups], values[:, 0, None]
        z1, z2 = x1[..., :c] / length, x2[..., :c] / length
        if diag:
            found = scale * matern52((z1 - z2).square().sum(-1)) + 1.0
        else:
            squares = z1.square().sum(-1)[..., :, None] + z2.square().sum(-1)[..., None, :]
            found = scale[..., None] * matern52(squares - 2.0 * (z1 @ z2.mT)) + 1.0
        if not of.effects:
            return found
        pairs, weights = values[:, 2 + len(of.location), None], values[:, 3 + len(of.location) :]
        weighted = x1[..., c:] * weights[:, None, of.effect_groups]
        if diag:
            effects = (weighted * x2[..., c:]).sum(-1)
            return found + effects + pairs * effects.square()
        effects = weighted @ x2[..., c:].mT
        return found + effects + pairs[..., None] * effects.square()


def _waves(x: Array) -> Array:
    """Basis functions of numbers `n x 1` in [0, 1], with the same variance everywhere, `n x 4`."""
    angles = math.pi * x * np.array([1.0, 2.0])
    scale = 0.56 * np.array([1.0, 0.5, 1.0, 0.5])
    return np.asarray(np.concatenate([np.cos(angles), np.sin(angles)], 1) * scale)


def matern52(squares: Tensor) -> Tensor:
    """The Matern-5/2 kernel of squared distances."""
    r = (5.0 * squares.clamp(min=1e-14)).sqrt()
    return (1.0 + r + r * r / 3.0) * torch.exp(-r)
