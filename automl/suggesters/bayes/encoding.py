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
POLYNOMIALS = (1.0, 0.5, 0.25)  # scale of the linear, quadratic and cubic main effect


class Encoder:
    """Embeds unit-cube configurations (`Space.encode`: NaN where inactive) of one space.

    A number is one coordinate of the kernel; an unordered choice of k is k coordinates, any two choices being equally
    far. A parameter that is not active sits in the middle of its range, so that it does not count between
    configurations that both lack it; its parent's choice tells them from those that have it. The additive part gets
    Legendre polynomials of a number, and an indicator of each choice.

    Args:
        space: of the configurations.
        names: the parameters that can change the metric; all others are left out.
    """

    def __init__(self, space: Space, names: Collection[str] | None = None) -> None:
        listed = [(i, p) for i, (n, p) in enumerate(space.parameters.items()) if names is None or n in names]
        self.columns = [i for i, _ in listed]
        self.sizes = [len(p.choices) if isinstance(p, Choice) and not p.ordered else 0 for _, p in listed]

    def __call__(self, unit: Array) -> Features:
        """Features of `n x d` unit-cube configurations."""
        z, phi = [np.empty((len(unit), 0))], [np.empty((len(unit), 0))]
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
                basis = np.stack([t, 1.5 * t**2 - 0.5, 2.5 * t**3 - 1.5 * t], 1)
                phi.append(basis * np.array(POLYNOMIALS) * active[:, None])
        return Features(torch.from_numpy(np.concatenate(z, 1)), torch.from_numpy(np.concatenate(phi, 1)))

    def prior(self) -> Prior:
        """Priors scaled to the number of parameters (Hvarfner et al., "Vanilla BO performs great", 2024)."""
        d = len(self.columns)
        z_group = [j for j, size in enumerate(self.sizes) for _ in range(size or 1)]
        phi_group = [j for j, size in enumerate(self.sizes) for _ in range(size or len(POLYNOMIALS))]
        numeric = torch.tensor([size == 0 for size in self.sizes])
        length = torch.where(numeric, 0.5, 1.0).log() + 0.5 * math.log(max(d, 1))
        loc = torch.cat([_full([0.0, math.log(1e-3), 0.0]), length.to(torch.float64), _full([math.log(0.1)] * d)])
        scale = torch.cat([_full([1.0, 2.0, 2.0]), _full([1.0] * d), _full([2.0] * d)])
        return Prior(loc, scale, torch.tensor(z_group), torch.tensor(phi_group), d)


def _full(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
