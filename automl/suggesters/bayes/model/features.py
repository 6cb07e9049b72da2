"""From configurations to the coordinates of the surrogate, and the prior that goes with them."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from search_spaces import Choice, Space

from .kernel import Features, Prior

Array = NDArray[np.float64]
WAVES = (
    1.0,
    0.5,
)  # scale of the waves of two ranges' length and of one, of which a main effect consists
AMPLITUDE = 0.56  # at which a main effect has as much variance as one of polynomials has on average
DIRECTION = 2.0  # scale of the weights of a direction, as large as those of the lengthscales
BOWL = 0.6  # a sum of parabolas with uniform minima has 0.9 in standardised losses


class Encoder:
    """Embeds unit-cube configurations (`Space.encode`: NaN where inactive) of one space.

    A number is one coordinate of the kernel; an unordered choice of k is k coordinates, any two choices being equally
    far. A parameter that is not active sits in the middle of its range, so that it does not count between
    configurations that both lack it; its parent's choice tells them from those that have it. The additive part gets
    waves of a number, and an indicator of each choice.

    Args:
        space: of the configurations.
        names: the parameters that can change the metric; all others are left out.
        extra: how many columns of numbers in [0, 1] follow those of the space, which are no parameters.
        bowl: whether the metric is a goal's loss, believed to be lower inside the ranges, and to have ridges.
    """

    def __init__(
        self,
        space: Space,
        names: Collection[str] | None = None,
        extra: int = 0,
        *,
        bowl: bool = False,
    ) -> None:
        listed = [
            (i, p)
            for i, (n, p) in enumerate(space.parameters.items())
            if names is None or n in names
        ]
        self.columns = [i for i, _ in listed] + [len(space.parameters) + i for i in range(extra)]
        self.sizes = [
            len(p.choices) if isinstance(p, Choice) and not p.ordered else 0 for _, p in listed
        ]
        self.sizes += [0] * extra
        self.extra, self.bowl, self.num_parameters = extra, bowl, len(space.parameters)
        active = activity(space)
        self.num_active = max(1.0, sum(active[p.name] for _, p in listed) + extra)

    def __call__(self, unit: Array) -> Features:
        """Features of `n x d` unit-cube configurations."""
        z, phi = [np.empty((len(unit), 0))], [np.empty((len(unit), 0))]
        bowl = np.zeros(len(unit))
        for column, size in zip(self.columns, self.sizes, strict=True):
            x = unit[:, column]
            active = ~np.isnan(x)
            x = np.where(active, x, 0.5)
            if size:
                hot = (np.floor(x[:, None] * size) == np.arange(size)) * active[:, None]
                z.append(hot / math.sqrt(2.0))
                phi.append(hot - active[:, None] / size)
            else:
                t = 2.0 * x - 1.0
                z.append(x[:, None])
                phi.append(_waves(x) * active[:, None])
                bowl += (1.5 * t**2 - 0.5) * active * (column < self.num_parameters)
        scaled = bowl / math.sqrt(self.num_active) * self.bowl
        return Features(
            *(torch.from_numpy(a) for a in (np.concatenate(z, 1), np.concatenate(phi, 1), scaled))
        )

    def prior(self) -> Prior:
        """Priors scaled to the number of active parameters (Hvarfner et al., "Vanilla BO performs great", 2024)."""
        d = len(self.columns)
        z_group = [j for j, size in enumerate(self.sizes) for _ in range(size or 1)]
        phi_group = [j for j, size in enumerate(self.sizes) for _ in range(size or 2 * len(WAVES))]
        numeric = torch.tensor([size == 0 for size in self.sizes])
        length = torch.where(numeric, 0.5, 1.0).log() + 0.5 * math.log(self.num_active)
        additive = _full([math.log(0.1)] * d)
        if self.extra:  # they are there because they matter
            length[-self.extra :], additive[-self.extra :] = math.log(0.5), 0.0
        numbers = [i for i, j in enumerate(z_group) if not self.sizes[j]] if self.bowl else []
        weights = _full([DIRECTION / math.sqrt(self.num_active)] * len(numbers))
        start = _full([0.0, math.log(5e-3), 0.0, math.log(BOWL)])
        loc = torch.cat([start, length.to(torch.float64), additive, torch.zeros_like(weights)])
        scale = torch.cat(
            [_full([1.0, 2.5, 2.0, 0.7]), _full([1.0] * d), _full([2.0] * d), weights]
        )
        columns = torch.tensor(numbers, dtype=torch.long)
        return Prior(loc, scale, torch.tensor(z_group), torch.tensor(phi_group), d, columns)


def activity(space: Space) -> dict[str, float]:
    """Share of random configurations in which each parameter exists, if its parents are independent."""
    shares: dict[str, float] = {}
    for name, parameter in space.parameters.items():  # parents first
        shares[name] = 1.0
        for parent, values in parameter.when.items():
            of = space.parameters[parent]
            shares[name] *= shares[parent] * (
                len(values) / len(of.choices) if isinstance(of, Choice) else 1.0
            )
    return shares


def _waves(x: Array) -> Array:
    """Basis functions of `n` numbers in [0, 1] whose variance is the same everywhere. That of polynomials is largest at
    the ends of a range, which are then tried in vain again and again."""
    angles = math.pi * x[:, None] * np.arange(1, len(WAVES) + 1)
    return AMPLITUDE * np.concatenate([np.cos(angles) * WAVES, np.sin(angles) * WAVES], 1)


def _full(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
