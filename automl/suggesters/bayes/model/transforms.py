"""Outcome transforms: from losses to the targets of a surrogate, smaller is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
KNEE = 2.0  # distance above the median, in that of the best below it
LIMIT = 1e100  # squares of larger values overflow


@dataclass(frozen=True)
class Transform:
    """Standardises z = (y - median) / (median - best), with a logarithm above `knee`.

    Very bad values then matter less. Near the best the scale is linear, so that expected
    improvement keeps its meaning.
    """

    median: float
    spread: float
    mean: float
    scale: float
    knee: float = KNEE

    @classmethod
    def fit(cls, values: Array, has_knee: bool = True) -> Transform:
        """Learn the centre and the scales from `n` finite values, n >= 1."""
        knee = KNEE if has_knee else math.inf
        values = np.clip(values, -LIMIT, LIMIT)
        median = float(np.median(values))
        best = float(values.min())
        spread = median - best
        if not spread > 1e-12 * max(abs(median), abs(best), 1e-300):
            spread = float(np.ptp(values)) or 1.0
        raw = cls(median, spread, 0.0, 1.0, knee)(values)
        deviation = float(raw.std())
        return cls(median, spread, float(raw.mean()), deviation if deviation > 1e-9 else 1.0, knee)

    def __call__(self, values: Array) -> Array:
        """The transformed values."""
        with np.errstate(over="ignore"):
            z = np.clip((np.clip(values, -LIMIT, LIMIT) - self.median) / self.spread, -LIMIT, LIMIT)
        z = np.where(z > self.knee, self.knee + np.log1p(np.maximum(z - self.knee, 0.0)), z)
        return np.asarray((z - self.mean) / self.scale, dtype=np.float64)

    def inverse(self, transformed: Array) -> Array:
        """The values before the transform."""
        z = np.asarray(transformed) * self.scale + self.mean
        tail = np.expm1(np.minimum(np.maximum(z - self.knee, 0.0), 600.0))
        z = np.where(z > self.knee, self.knee + tail, z)
        return np.asarray(z * self.spread + self.median, dtype=np.float64)


def excess_scores(excess: Array, known: Array) -> Array:
    """How far a bound is exceeded, linear near the bound and logarithmic far from it; 0 stays 0.

    Args:
        excess: `n`, metric less bound.
        known: the excesses from which the scale is learned.
    """
    excess = np.clip(excess, -LIMIT, LIMIT)
    known = np.clip(known, -LIMIT, LIMIT)
    scale = float(np.median(np.abs(known))) or float(np.abs(known).max()) or 1.0
    spread = max(float(np.sqrt(np.mean(np.arcsinh(known / scale) ** 2))), 1e-9)
    return np.asarray(np.arcsinh(excess / scale) / spread, dtype=np.float64)
