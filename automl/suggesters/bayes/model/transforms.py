"""Outcome transforms: what the surrogate is fitted to, smaller being better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LIMIT = 1e100  # beyond it squares overflow


@dataclass(frozen=True)
class Transform:
    """Monotone: y -> standardised z(y), with z = (y - median) / (median - best), and a logarithm above `knee`.

    Bad values matter less the worse they are; near the best the scale is left alone, so that expected improvement
    keeps its meaning.
    """

    median: float
    spread: float
    mean: float
    scale: float
    knee: float = 2.0

    @classmethod
    def fit(cls, values: Array) -> Transform:
        """Learn the centre and the scales from `n` finite values, n >= 1."""
        values = np.clip(values, -LIMIT, LIMIT)
        median, best = float(np.median(values)), float(values.min())
        spread = median - best
        if not spread > 1e-12 * max(abs(median), abs(best), 1e-300):
            spread = float(np.ptp(values)) or 1.0
        raw = cls(median, spread, 0.0, 1.0)(values)
        deviation = float(raw.std())
        return cls(median, spread, float(raw.mean()), deviation if deviation > 1e-9 else 1.0)

    def __call__(self, values: Array) -> Array:
        """The transformed values."""
        with np.errstate(over="ignore"):
            z = np.clip((np.clip(values, -LIMIT, LIMIT) - self.median) / self.spread, -LIMIT, LIMIT)
        z = np.where(z > self.knee, self.knee + np.log1p(np.maximum(z - self.knee, 0.0)), z)
        return np.asarray((z - self.mean) / self.scale, dtype=np.float64)

    def inverse(self, transformed: Array) -> Array:
        """Values of transformed ones."""
        z = np.asarray(transformed) * self.scale + self.mean
        tail = np.expm1(np.minimum(np.maximum(z - self.knee, 0.0), 600.0))
        z = np.where(z > self.knee, self.knee + tail, z)
        return np.asarray(z * self.spread + self.median, dtype=np.float64)


def excess_scores(excess: Array, known: Array) -> Array:
    """How far a bound is exceeded, on a scale that is fine near the bound and logarithmic far away; 0 stays 0.

    Args:
        known: excesses from which the scale is learned.
    """
    excess, known = np.clip(excess, -LIMIT, LIMIT), np.clip(known, -LIMIT, LIMIT)
    scale = float(np.median(np.abs(known))) or float(np.abs(known).max()) or 1.0
    spread = max(float(np.sqrt(np.mean(np.arcsinh(known / scale) ** 2))), 1e-9)
    return np.asarray(np.arcsinh(excess / scale) / spread, dtype=np.float64)
