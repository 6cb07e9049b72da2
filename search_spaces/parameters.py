"""The kinds of parameters: `Float`, `Int` and `Choice`, each with its map to the unit interval."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .parameter_base import FloatArray, NumberParameter, Parameter, RawArray
from .validation import (
    ALL,
    Params,
    Value,
    When,
    check_bounds,
    checked_bound,
    checked_choices,
    checked_flag,
    checked_int_bound,
    show,
)

__all__ = [
    "ALL",
    "Choice",
    "Float",
    "FloatArray",
    "Int",
    "Parameter",
    "Params",
    "RawArray",
    "Value",
    "parameter_from_dict",
]

_SCALARS: Final = (bool, int, float, str)


class Float(NumberParameter):
    """A real number in [low, high], on a logarithmic scale if `log`.

    Example:
        >>> Float("dropout", 0.0, 0.5).from_unit(0.25)
        0.125
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
        default: float | None = None,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.low = checked_bound(name, "low", low)
        self.high = checked_bound(name, "high", high)
        self.log = checked_flag(name, "log", log)
        check_bounds(name, self.low, self.high, self.log)
        # Halved, so that the width of the widest interval is finite.
        self._begin = math.log(self.low) if log else self.low / 2
        self._end = math.log(self.high) if log else self.high / 2
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int | None:
        """1 if low equals high, else None."""
        return 1 if self.low == self.high else None

    def canonical(self, value: Value) -> float:
        """The value as a float."""
        return float(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        return self.centres(np.asarray(values, dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        """See `Parameter.centres`."""
        if self._begin == self._end:
            return np.full(raw.shape, 0.5)
        scaled = np.log(np.maximum(raw, self.low)) if self.log else raw / 2
        return _unit((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        """See `Parameter.raw`."""
        u = _unit(units)
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
        """The only value if low equals high; raises SpaceError if there are more."""
        if self.low != self.high:
            raise SpaceError(f"{self.name} has infinitely many values")
        return [self.low]

    def _arguments(self) -> list[str]:
        return [_short(self.low), _short(self.high), *(["log=True"] if self.log else [])]


class Int(NumberParameter):
    """An integer in [low, high], on a logarithmic scale if `log`.

    Value v owns the cell from v - 0.5 to v + 0.5 of the scale and is encoded as its centre. If
    there are more than about 10**13 values, neighbours may share a coordinate.
    """

    kind = "int"
    low: int
    high: int
    _types = (int,)
    _noun = "an integer"

    def __init__(
        self,
        name: str,
        low: int,
        high: int,
        *,
        log: bool = False,
        default: int | None = None,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.low = checked_int_bound(name, "low", low)
        self.high = checked_int_bound(name, "high", high)
        self.log = checked_flag(name, "log", log)
        check_bounds(name, self.low, self.high, self.log)
        # If the bounds are close, both scales agree, and the linear one separates neighbours.
        self._curved = log and self.high > self.low * (1 + 1e-6)
        self._begin = math.log(self.low - 0.5) if self._curved else 0.0
        self._end = math.log(self.high + 0.5) if self._curved else float(self.high - self.low + 1)
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int:
        """Number of integers."""
        return self.high - self.low + 1

    def canonical(self, value: Value) -> int:
        """The value as an int."""
        return int(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        if self._curved:
            return self.centres(np.asarray(values, dtype=np.float64))
        cells = np.array([value - self.low for value in values], dtype=np.float64)  # type: ignore[operator]
        return _unit((cells + 0.5) / self._end)

    def centres(self, raw: RawArray) -> FloatArray:
        """See `Parameter.centres`."""
        if not self._curved:
            return _unit((raw - self.low + 0.5) / self._end)
        v = np.maximum(raw, self.low)
        scaled = np.log(v) + 0.5 * np.log1p(-0.25 / v**2)
        return _unit((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        """See `Parameter.raw`."""
        cells = np.floor(self._cells(units)) + (0.0 if self._curved else float(self.low))
        return cast(FloatArray, np.minimum(np.maximum(cells, self.low), self.high))

    def _cells(self, units: FloatArray) -> FloatArray:
        """Positions that floor to the value on a logarithmic scale, else to the value minus low."""
        scaled = self._begin + _unit(units) * (self._end - self._begin)
        return np.exp(scaled) + 0.5 if self._curved else scaled

    def from_units(self, units: FloatArray) -> list[int]:
        """See `Parameter.from_units`."""
        offset = 0 if self._curved else self.low
        cells = self._cells(units).tolist()
        return [min(max(int(cell) + offset, self.low), self.high) for cell in cells]

    def values(self) -> list[int]:
        """Every integer from low to high."""
        return list(range(self.low, self.high + 1))

    def weights(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.weights`; smaller for larger values on a logarithmic scale."""
        if not self._curved:
            return super().weights(values)
        v = np.asarray(values, dtype=np.float64)
        return (np.log(v + 0.5) - np.log(v - 0.5)) / (self._end - self._begin)

    def _arguments(self) -> list[str]:
        return [str(self.low), str(self.high), *(["log=True"] if self.log else [])]


class Choice(Parameter):
    """One of a list of bools, ints, floats or strings.

    Choice i of k is encoded as (i + 0.5) / k.

    Args:
        choices: the values, all different; True differs from 1.
        ordered: whether neighbours in the list are similar.
        name, default, when, affects: see `Parameter`.

    Example:
        >>> Choice("optimizer", ["sgd", "adam"], default="adam").to_unit("adam")
        0.75
    """

    kind = "choice"

    def __init__(
        self,
        name: str,
        choices: Sequence[Value],
        *,
        ordered: bool = False,
        default: Value | None = None,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.choices = checked_choices(name, choices)
        self.ordered = checked_flag(name, "ordered", ordered)
        self._index = {choice: i for i, choice in enumerate(self.choices)}
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.choices)

    def index(self, value: Value) -> int:
        """Position of the value in the list; raises SpaceError if it is not a choice."""
        found = self._index.get(value) if isinstance(value, _SCALARS) else None
        if found is None or isinstance(value, bool) is not isinstance(self.choices[found], bool):
            listed = ", ".join(map(repr, self.choices[:20]))
            more = ", ..." if len(self.choices) > 20 else ""
            raise SpaceError(f"{self.name} must be one of {listed}{more}; got {show(value)}")
        return found

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is one of the choices (True differs from 1)."""
        self.index(value)

    def canonical(self, value: Value) -> Value:
        """The choice that equals the value."""
        return self.choices[self.index(value)]

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`; raises SpaceError if a value is not a choice."""
        try:
            indices = [self._index[value] for value in values]
        except (KeyError, TypeError):
            indices = [self.index(value) for value in values]
        return self.centres(np.array(indices, dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        """See `Parameter.centres`."""
        return (raw + 0.5) / len(self.choices)

    def raw(self, units: FloatArray) -> npt.NDArray[np.int64]:
        """See `Parameter.raw`."""
        num_choices = len(self.choices)
        return np.minimum((_unit(units) * num_choices).astype(np.int64), num_choices - 1)

    def from_units(self, units: FloatArray) -> list[Value]:
        """See `Parameter.from_units`."""
        return [self.choices[i] for i in self.raw(units).tolist()]

    def values(self) -> list[Value]:
        """The choices."""
        return list(self.choices)

    def perturb(self, units: FloatArray, rng: np.random.Generator) -> FloatArray:
        """See `Parameter.perturb`; if the choices are not ordered, any other choice."""
        num_choices = len(self.choices)
        if self.ordered or num_choices == 1:
            return super().perturb(units, rng)
        return self.centres(
            (self.raw(units) + rng.integers(1, num_choices, size=len(units))) % num_choices
        )

    def domain(self) -> dict[str, Any]:
        """The choices, and whether they are ordered."""
        return {"choices": list(self.choices), **({"ordered": True} if self.ordered else {})}

    def _arguments(self) -> list[str]:
        return [repr(list(self.choices)), *(["ordered=True"] if self.ordered else [])]


KINDS: Final[Mapping[str, type[Float] | type[Int] | type[Choice]]] = {
    c.kind: c for c in (Float, Int, Choice)
}


def _unit(units: FloatArray) -> FloatArray:
    """Coordinates clipped to [0, 1]; NaN becomes 0.5."""
    inside: FloatArray = np.minimum(np.maximum(units, 0.0), 1.0)
    return np.where(np.isnan(inside), 0.5, inside)


def parameter_from_dict(data: Any) -> Parameter:
    """The inverse of `Parameter.to_dict`.

    Raises:
        SpaceError: the data do not describe a parameter.
    """
    if not isinstance(data, Mapping) or data.get("type") not in list(KINDS):
        raise SpaceError(
            f"a parameter is an object whose type is one of {', '.join(KINDS)}; got {show(data)}"
        )
    arguments = {key: value for key, value in data.items() if key != "type"}
    try:
        return KINDS[data["type"]](**arguments)
    except TypeError as error:
        raise SpaceError(f"malformed {data['type']} parameter {show(data)}: {error}") from None


def _short(number: float) -> str:
    """The number without a trailing .0, in full if six digits do not reproduce it."""
    text = f"{number:g}"
    return text if float(text) == number else repr(number)
