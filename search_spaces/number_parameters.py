"""Numbers as parameters: `Float` and `Int`, each with its map to the unit interval."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final, cast

import numpy as np

from .errors import SpaceError
from .parameter_base import FloatArray, NumberParameter, RawArray, clipped
from .validation import (
    ALL,
    Value,
    When,
    check_bounds,
    checked_bound,
    checked_flag,
    checked_int_bound,
    checked_step,
)

MOST_DIGITS: Final = 15  # decimals to which values in steps are rounded, so that 0.1 * 3 is 0.3


class Float(NumberParameter):
    """A real number in [low, high], on a logarithmic scale if `log`.

    With a `step` the values are low, low + step and so on; each is encoded as the centre of its
    cell, and `high` becomes the last of them.

    Example:
        >>> Float("dropout", 0.0, 0.5).from_unit(0.25)
        0.125
        >>> Float("dropout", 0.0, 0.5, step=0.2).values()
        [0.0, 0.2, 0.4]
    """

    kind = "float"
    _types = (int, float)
    _noun = "a number"

    def __init__(
        self,
        name: str,
        low: float,
        high: float,
        *,
        log: bool = False,
        step: float | None = None,
        default: float | None = None,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.low = checked_bound(name, "low", low)
        self.high = checked_bound(name, "high", high)
        self.log = checked_flag(name, "log", log)
        check_bounds(name, self.low, self.high, self.log)
        self.step = checked_step(name, step, log=self.log, whole=False)
        self._count = 0  # of the values in steps
        self._digits = 0
        if self.step is not None:
            self.gap = self.step
            exact = [Decimal(repr(number)) for number in (self.low, self.high, self.step)]
            self._count = int((exact[1] - exact[0]) / exact[2]) + 1
            self._digits = max(0, *(-cast(int, part.as_tuple().exponent) for part in exact))
            self.high = float(exact[0] + (self._count - 1) * exact[2])
        # Halved, so that the width of the widest interval is finite.
        self._begin = math.log(self.low) if log else self.low / 2
        self._end = math.log(self.high) if log else self.high / 2
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int | None:
        """Number of values in steps; without a step, 1 if low equals high, else None."""
        return 1 if self.low == self.high else self._count or None

    def nearest(self, value: float) -> float:
        """See `NumberParameter.nearest`."""
        if self.step is None:
            return min(max(float(value), self.low), self.high)
        inside = min(max(value, self.low), self.high)
        return float(self._stepped(np.rint((inside - self.low) / self.step)))

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        return self.centres(np.asarray(values, dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        """See `Parameter.centres`."""
        if self._begin == self._end:
            return np.full(raw.shape, 0.5)
        if self.step is not None:
            return clipped((np.rint((raw - self.low) / self.step) + 0.5) / self._count)
        scaled = np.log(np.maximum(raw, self.low)) if self.log else raw / 2
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        """See `Parameter.raw`."""
        u = clipped(units)
        if self.step is not None:
            return self._stepped(np.minimum(np.floor(u * self._count), self._count - 1))
        if self.log:
            values = np.exp(self._begin + u * (self._end - self._begin))
        else:
            values = self.low * (1.0 - u) + self.high * u
        # Rounding must not move the ends.
        values = np.minimum(np.maximum(values, self.low), self.high)
        return np.where(u <= 0.0, self.low, np.where(u >= 1.0, self.high, values))

    def from_units(self, units: FloatArray) -> list[float]:
        """See `Parameter.from_units`."""
        return cast(list[float], self.raw(units).tolist())

    def values(self) -> list[float]:
        """Every value in steps; raises SpaceError if there are infinitely many."""
        if self.size is None:
            raise SpaceError(f"{self.name} has infinitely many values")
        if self.step is None:
            return [self.low]
        return cast(list[float], self._stepped(np.arange(self._count, dtype=np.float64)).tolist())

    def _stepped(self, cells: FloatArray) -> FloatArray:
        """The values of cells that are counted from 0."""
        values = self.low + cells * cast(float, self.step)
        return np.round(values, self._digits) if self._digits <= MOST_DIGITS else values


class Int(NumberParameter):
    """An integer in [low, high], on a logarithmic scale if `log`.

    Value v owns the cell from v - 0.5 to v + 0.5 of the scale and is encoded as its centre. If
    there are more than about 10**13 values, neighbours may share a coordinate. With a `step` the
    values are low, low + step and so on, and `high` becomes the last of them.
    """

    kind = "int"
    low: int
    high: int
    step: int
    _types = (int,)
    _noun = "an integer"

    def __init__(
        self,
        name: str,
        low: int,
        high: int,
        *,
        log: bool = False,
        step: int = 1,
        default: int | None = None,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.low = checked_int_bound(name, "low", low)
        self.high = checked_int_bound(name, "high", high)
        self.log = checked_flag(name, "log", log)
        check_bounds(name, self.low, self.high, self.log)
        self.step = int(checked_step(name, step, log=self.log, whole=True) or 1)
        self.gap = self.step
        self.high -= (self.high - self.low) % self.step
        # If the bounds are close, both scales agree, and the linear one separates neighbours.
        self._curved = log and self.high > self.low * (1 + 1e-6)
        self._begin = math.log(self.low - 0.5) if self._curved else 0.0
        self._end = math.log(self.high + 0.5) if self._curved else float(self.size)
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int:
        """Number of values."""
        return (self.high - self.low) // self.step + 1

    def nearest(self, value: float) -> int:
        """See `NumberParameter.nearest`."""
        inside = min(max(value, self.low), self.high)
        whole = inside if isinstance(inside, int) else round(inside)
        cells = (2 * (whole - self.low) + self.step) // (2 * self.step)
        return min(self.low + cells * self.step, self.high)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        if self._curved:
            return self.centres(np.asarray(values, dtype=np.float64))
        cells = np.array([value - self.low for value in values], dtype=np.float64)  # type: ignore[operator]
        return clipped((cells / self.step + 0.5) / self._end)

    def centres(self, raw: RawArray) -> FloatArray:
        """See `Parameter.centres`."""
        if not self._curved:
            return clipped(((raw - self.low) / self.step + 0.5) / self._end)
        v = np.maximum(raw, self.low)
        scaled = np.log(v) + 0.5 * np.log1p(-0.25 / v**2)
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        """See `Parameter.raw`."""
        cells = np.floor(self._cells(units))
        values = cells if self._curved else cells * self.step + float(self.low)
        return cast(FloatArray, np.minimum(np.maximum(values, self.low), self.high))

    def _cells(self, units: FloatArray) -> FloatArray:
        """Positions that floor to the value on a logarithmic scale, else to the steps from low."""
        scaled = self._begin + clipped(units) * (self._end - self._begin)
        return np.exp(scaled) + 0.5 if self._curved else scaled

    def from_units(self, units: FloatArray) -> list[int]:
        """See `Parameter.from_units`."""
        offset = 0 if self._curved else self.low
        cells = self._cells(units).tolist()
        return [min(max(int(cell) * self.step + offset, self.low), self.high) for cell in cells]

    def values(self) -> list[int]:
        """Every value from low to high."""
        return list(range(self.low, self.high + 1, self.step))

    def weights(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.weights`; smaller for larger values on a logarithmic scale."""
        if not self._curved:
            return super().weights(values)
        v = np.asarray(values, dtype=np.float64)
        return (np.log(v + 0.5) - np.log(v - 0.5)) / (self._end - self._begin)
