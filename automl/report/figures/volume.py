"""Hypervolume after each trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SAMPLES = 4096


def hypervolumes(losses: Array) -> Array:
    """The dominated share of the box between best and worst, after each of `n x g` losses: `n`.

    It is exact for two goals; for more it is the share of 4,096 fixed points.
    """
    low, high = losses.min(0), losses.max(0)
    extent = np.where(high > low, high - low, 1.0)
    unit = (losses - low) / extent
    return _exact(unit) if unit.shape[1] == 2 else _sampled(unit)


def _exact(unit: Array) -> Array:
    """Keeps the front sorted by the first goal."""
    found, front, volume = np.empty(len(unit)), np.empty((0, 2)), 0.0
    for i, point in enumerate(unit):
        if not (front <= point).all(1).any():
            front = np.concatenate([front[~(point <= front).all(1)], point[None]])
            front = front[np.argsort(front[:, 0])]
            right = np.append(front[1:, 0], 1.0)
            volume = float(((right - front[:, 0]) * (1.0 - front[:, 1])).sum())
        found[i] = volume
    return found


def _sampled(unit: Array) -> Array:
    points = np.random.default_rng(0).random((SAMPLES, unit.shape[1]))
    covered, found = np.zeros(SAMPLES, dtype=bool), np.empty(len(unit))
    for i, row in enumerate(unit):
        covered |= (row <= points).all(1)
        found[i] = covered.mean()
    return found
