"""Ranges of axes in which usual values can be read, whatever the others are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_DRAWN: Final = 1e307  # of a drawn number: sums and differences of a few such are finite
FAR_OUT: Final = 3.0  # interquartile ranges beyond a quartile; decades beyond equal quartiles
NARROWEST: Final = 1e-290  # a narrower range is a constant: its parts cannot be told apart
DIGITS: Final = 1e-9  # of the magnitude: an axis does not resolve less


def clipped(value: float) -> float:
    """The number to draw instead of one that is so large that differences overflow."""
    return min(max(value, -MAX_DRAWN), MAX_DRAWN)


def padded(low: float, high: float) -> tuple[float, float]:
    """A range with some room at its ends, which is never empty."""
    low, high = clipped(low), clipped(high)
    magnitude = max(abs(low), abs(high))
    room = max(0.06 * (high - low), DIGITS * magnitude)
    if high - low <= max(NARROWEST, DIGITS * magnitude):
        room = 0.05 * magnitude if magnitude > 1e3 * NARROWEST else 0.5
    return clipped(low - room), clipped(high + room)


@dataclass(frozen=True)
class AxisRange:
    """The range of an axis. The page draws values beyond it as triangles at its edge.

    Args:
        low, high: of the axis; log: whether it is logarithmic.
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def of(
        cls, values: Iterable[float], *, log: bool = True, spread: float = math.inf
    ) -> AxisRange:
        """The range of all values but those that are far out, more than three interquartile ranges.

        The fences are Tukey's ("Exploratory Data Analysis", 1977). The axis is logarithmic if all
        values are positive and fewer of their logarithms are far out. If the quartiles are equal,
        values up to a thousand times as large are kept: beside larger ones, the axis shows the
        others as 0. If they are 0, all are kept.

        Args:
            log: whether the axis may be logarithmic.
            spread: largest over smallest value from which it is, if all are positive.
        """
        known = np.array([clipped(value) for value in values if np.isfinite(value)], dtype=float)
        if not len(known):
            return cls(0.0, 1.0)
        low, high, beyond = _fenced(known, 10.0**FAR_OUT * abs(float(np.median(known))))
        is_spread = low > 0 and high > spread * low
        if log and (beyond or is_spread) and known.min() > 0:
            first, last, fewer = _fenced(np.log10(known), FAR_OUT)
            if fewer < beyond or is_spread:
                first, last = padded(first, last)
                return cls(10.0 ** max(first, -300.0), 10.0 ** min(last, 307.0), log=True)
        return cls(*padded(low, high))

    @property
    def range(self) -> list[float]:
        """The range as plotly takes it."""
        ends = [self.low, self.high]
        return [float(np.log10(end)) for end in ends] if self.log else ends

    def inside(self, values: Iterable[float]) -> list[float]:
        """The values, those beyond the range at its edge."""
        return [min(max(value, self.low), self.high) for value in values]

    def axis(self, axis: dict[str, Any]) -> dict[str, Any]:
        """An axis of plotly with this range."""
        return {**axis, "range": self.range, **({"type": "log"} if self.log else {})}


def _fenced(values: NDArray[np.float64], plateau: float) -> tuple[float, float, int]:
    """The range of the values within the fences, and the number of values beyond.

    Args:
        plateau: from a quartile to a fence if the quartiles are equal; 0 for no fence.
    """
    first, third = np.quantile(values, [0.25, 0.75])
    margin = FAR_OUT * (third - first) or plateau
    if margin == 0:
        return float(values.min()), float(values.max()), 0
    kept = values[(values >= first - margin) & (values <= third + margin)]
    return float(kept.min()), float(kept.max()), len(values) - len(kept)
