"""Encodes configurations as features of the surrogate, with a prior of its hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automl.suggesters.bayes.policy import ALL_RULES, Policy
from search_spaces import Choice, Space

from .kernel import Features, HyperparameterPrior

Array = NDArray[np.float64]
WAVES = (1.0, 0.5)  # scales of the waves of a main effect: two ranges long, and one
AMPLITUDE = 0.56  # gives a main effect the average variance of one of polynomials
DIRECTION = 2.0  # prior scale of the weights of a direction, like that of lengthscales
PARABOLA = 0.5  # prior mean of the weight of a number's parabola
TREND = 0.6  # prior deviation of the weights of a number's slope and parabola


class FeatureEncoder:
    """Embeds unit-cube configurations (`Space.encode`, NaN if inactive) of one space.

    A number is one coordinate of the kernel. An unordered choice of k is k coordinates, any two
    options being equally far apart. An inactive parameter sits in the middle of its range, so that
    configurations without it do not differ by it; its parent's value marks those that have it. The
    additive part has waves of each number, and an indicator of each option.

    Args:
        space: of the configurations.
        names: the parameters that affect the metric, all if None.
        extra: how many columns of numbers in [0, 1] follow the parameters.
        goal: whether the metric is a goal's loss, which gets a trend and a direction.
        policy: which parts of the prior are on.
    """

    def __init__(
        self,
        space: Space,
        names: Collection[str] | None = None,
        extra: int = 0,
        *,
        goal: bool = False,
        policy: Policy = ALL_RULES,
    ) -> None:
        listed = [
            (i, p)
            for i, (n, p) in enumerate(space.parameters.items())
            if names is None or n in names
        ]
        self.space = space
        self.names = names
        self.columns = [i for i, _ in listed] + [len(space.parameters) + i for i in range(extra)]
        self.sizes = [
            len(p.choices) if isinstance(p, Choice) and not p.ordered else 0 for _, p in listed
        ]
        self.sizes += [0] * extra
        self.extra = extra
        self.goal = goal
        self.policy = policy
        self.num_parameters = len(space.parameters)
        active = activity(space)
        self.num_active = max(1.0, sum(active[p.name] for _, p in listed) + extra)
        if not policy.scaled_to_active:
            self.num_active = float(max(1, len(self.columns)))

    def __call__(self, unit: Array) -> Features:
        """Features of `n x d` unit-cube configurations."""
        z = [np.empty((len(unit), 0))]
        phi = [np.empty((len(unit), 0))]
        mean = np.zeros(len(unit))
        trend = [np.empty((len(unit), 0))]
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
                if self.goal and self.policy.trend and column < self.num_parameters:
                    parabola = (1.5 * t**2 - 0.5) * active
                    mean += PARABOLA * parabola
                    trend.append(np.stack([t * active, parabola], 1))
        scale = 1.0 / math.sqrt(self.num_active)
        trend = [TREND * scale * columns for columns in trend]
        mean *= scale
        parts = [np.concatenate(listed, 1) for listed in (z, phi, trend)]
        tensors = [torch.from_numpy(part) for part in parts]
        once = torch.ones(len(unit), dtype=torch.float64)
        return Features(tensors[0], tensors[1], torch.from_numpy(mean), tensors[2], once)

    def with_extra(self, count: int) -> FeatureEncoder:
        """The same with this many further columns of numbers."""
        extra = self.extra + count
        return FeatureEncoder(self.space, self.names, extra, goal=self.goal, policy=self.policy)

    def prior(self) -> HyperparameterPrior:
        """The prior, scaled to the number of active parameters.

        After Hvarfner et al., "Vanilla Bayesian optimization performs great in high dimensions",
        2024.
        """
        d = len(self.columns)
        z_group = [j for j, size in enumerate(self.sizes) for _ in range(size or 1)]
        phi_group = [j for j, size in enumerate(self.sizes) for _ in range(size or 2 * len(WAVES))]
        numeric = torch.tensor([size == 0 for size in self.sizes])
        length = torch.where(numeric, 0.5, 1.0).log() + 0.5 * math.log(self.num_active)
        additive = _full([math.log(0.1)] * d)
        if self.extra:  # these are known to matter
            length[-self.extra :], additive[-self.extra :] = math.log(0.5), 0.0
        numbers = [i for i, j in enumerate(z_group) if not self.sizes[j]] if self.goal else []
        weights = _full([DIRECTION / math.sqrt(self.num_active)] * len(numbers))
        pairs = self.policy.pair_kernel
        means = _full([0.0, math.log(5e-3), 0.0 if pairs else -math.inf])  # full, noise, pair
        scales = _full([1.0, 2.5, 2.0 if pairs else 0.0, *[1.0] * d, *[2.0] * d])
        return HyperparameterPrior(
            loc=torch.cat([means, length.double(), additive, torch.zeros_like(weights)]),
            scale=torch.cat([scales, weights]),
            z_group=torch.tensor(z_group),
            phi_group=torch.tensor(phi_group),
            num_parameters=d,
            numbers=torch.tensor(numbers, dtype=torch.long),
        )


def activity(space: Space) -> dict[str, float]:
    """Share of random configurations in which each parameter is active, its parents independent."""
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
    """Basis functions of `n` numbers in [0, 1], with the same variance everywhere.

    The variance of polynomials is largest at the ends of a range, which would be tried too often.
    """
    angles = math.pi * x[:, None] * np.arange(1, len(WAVES) + 1)
    return AMPLITUDE * np.concatenate([np.cos(angles) * WAVES, np.sin(angles) * WAVES], 1)


def _full(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
