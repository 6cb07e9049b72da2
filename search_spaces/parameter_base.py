"""The base class of parameters: name, condition, effect, and a map to the unit interval."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .validation import (
    ALL,
    Value,
    When,
    checked_affects,
    checked_name,
    checked_when,
    number_of,
    plain,
    same,
    show,
)

FloatArray = npt.NDArray[np.float64]
RawArray = npt.NDArray[Any]

TOLERANCE = 1e-8  # of a step: how far rounding may move a value from its grid


class Parameter(ABC):
    """One parameter: its name, its legal values, and the condition under which it is active.

    Immutable by convention.

    Args:
        name: an identifier, or several joined by dots, so that constraints can use it.
        default: the value of trial 0; None if there is no default.
        has_default: whether there is one, for a parameter that can be None.
        when: maps each parent to the value, or the list of values, that activates this parameter.
            If there are several parents, all must match. None if it is always active.
        affects: which of "quality", "speed" and "memory" the parameter can change.

    Raises:
        SpaceError: an argument is malformed.

    Attributes:
        gap: difference of neighbouring values of a discrete parameter in `raw`.
        takes_none: whether None is one of the values.
    """

    kind: ClassVar[str]
    gap: float = 1
    takes_none: bool = False

    def __init__(
        self,
        name: str,
        *,
        default: Value | None,
        when: When | None,
        affects: str | Iterable[str] = ALL,
        has_default: bool = False,
    ) -> None:
        self.name = checked_name(name)
        self.when = checked_when(self.name, when)
        self.affects = checked_affects(self.name, affects)
        self.has_default = has_default or default is not None
        self.default = self._checked_default(plain(default)) if self.has_default else None

    def _checked_default(self, default: Value) -> Value:
        try:
            return self.accept(default)
        except SpaceError as error:
            raise SpaceError(f"the default of {error}") from None

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of values; None if there are infinitely many."""

    @abstractmethod
    def accept(self, value: Any, *, text: bool = False) -> Value:
        """The value of this parameter that a given one is: a float for a `Float`, and so on.

        Args:
            value: plain, of NumPy, or the text of a value.
            text: whether a text comes from where all values are texts, such as a table or a shell:
                "1" is 1 there even if there is a choice "1", which is written '"1"'.

        Raises:
            SpaceError: it is no value of this parameter; the message says what would be.
        """

    def text(self, value: Value) -> str:
        """The text that `accept` reads as this value."""
        return str(value)

    @abstractmethod
    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """Map n values to coordinates in [0, 1], shape (n,).

        A discrete value maps to the centre of its cell.
        """

    @abstractmethod
    def raw(self, units: FloatArray) -> RawArray:
        """Like `from_units`, but an array: float64 numbers, or indices for a `Choice`."""

    @abstractmethod
    def centres(self, raw: RawArray) -> FloatArray:
        """The inverse of `raw`: coordinates; a discrete value maps to the centre of its cell."""

    @abstractmethod
    def from_units(self, units: FloatArray) -> list[Any]:
        """The nearest values to n coordinates, shape (n,); clips coordinates to [0, 1]."""

    @abstractmethod
    def values(self) -> list[Any]:
        """Every value in order.

        Raises:
            SpaceError: there are infinitely many values.
        """

    def perturb(self, units: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Random coordinates near the given ones, shape (n,); steps are reflected at the ends.

        A discrete parameter always moves to a different value, if it has more than one.
        """
        steps = rng.normal(0.0, 10.0 ** rng.uniform(-2.0, -0.5, size=len(units)))
        moved = reflected(units + steps)
        if self.size in (None, 1):
            return moved
        before, after = map(self.raw, (units, moved))
        low, high = self.raw(np.array([0.0, 1.0]))
        step = np.where(rng.random(len(units)) < 0.5, -1, 1)
        step = np.where(before == low, 1, np.where(before == high, -1, step))
        return self.centres(np.where(after == before, before + step * self.gap, after))

    def weights(self, values: Sequence[Value]) -> FloatArray:
        """Widths of the cells of discrete values in the unit interval, shape (n,)."""
        return np.full(len(values), 1.0 / (self.size or 1))

    @abstractmethod
    def domain(self) -> dict[str, Any]:
        """The JSON fields of this kind, besides name, default, when and affects."""

    def to_unit(self, value: Value) -> float:
        """Like `to_units`, for one value."""
        return float(self.to_units([value])[0])

    def from_unit(self, unit: float) -> Value:
        """Like `from_units`, for one coordinate."""
        return cast(Value, self.from_units(np.array([unit], dtype=np.float64))[0])

    def middle(self) -> Value:
        """The default if there is one, else the value at coordinate 0.5."""
        return self.default if self.has_default else self.from_unit(0.5)

    def key(self, value: Value) -> Hashable:
        """Identity of one of the values."""
        return self.accept(value)

    def legal(self, value: Any) -> bool:
        """Whether `accept` takes the value."""
        try:
            self.accept(value)
        except SpaceError:
            return False
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; the inverse is `parameter_from_dict`."""
        data: dict[str, Any] = {"type": self.kind, "name": self.name, **self.domain()}
        if self.has_default:
            data["default"] = self.default
        if self.when:
            data["when"] = {parent: list(values) for parent, values in self.when.items()}
        if self.affects != ALL:
            data["affects"] = sorted(self.affects)
        return data

    def __repr__(self) -> str:
        extras = [f"default={self.default!r}"] if self.has_default else []
        if self.when:
            alone = {p: len(v) == 1 and not isinstance(v[0], tuple) for p, v in self.when.items()}
            when = {p: v[0] if alone[p] else list(v) for p, v in self.when.items()}
            extras.append(f"when={when!r}")
        if self.affects != ALL:
            extras.append(f"affects={{{', '.join(map(repr, sorted(self.affects)))}}}")
        return f"{type(self).__name__}({', '.join([repr(self.name), *self._arguments(), *extras])})"

    @abstractmethod
    def _arguments(self) -> list[str]: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameter) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        return json.dumps(self.to_dict())  # JSON tells True from 1, which == does not


class NumberParameter(Parameter):
    """A number between two bounds, on a linear or a logarithmic scale, perhaps in steps from low.

    Attributes:
        low, high: the smallest and the largest value. With a step, `high` is the last value that
            steps from `low` reach, as Optuna has it.
        step: the difference of neighbouring values; None if every number between is a value.
    """

    low: float
    high: float
    log: bool
    step: float | None
    _noun: ClassVar[str]

    def accept(self, value: Any, *, text: bool = False) -> float:
        """See `Parameter.accept`; a number on the grid up to `TOLERANCE` of a step."""
        number = number_of(value) if isinstance(value, str) else plain(value)
        if self.kind == "int" and isinstance(number, float) and math.isfinite(number):
            number = round(number) if abs(number - round(number)) < TOLERANCE else number
        fits = int if self.kind == "int" else int | float
        if isinstance(number, bool) or not isinstance(number, fits):
            raise SpaceError(
                f"{self.name} must be {self._noun}, got {show(value)} ({type(value).__name__})"
            )
        for bound in (self.low, self.high):
            if not self.low <= number <= self.high and same(number, bound):
                return bound
        slack = TOLERANCE * self.step if self.step and isinstance(number, float) else 0
        if not self.low - slack <= number <= self.high + slack:
            raise SpaceError(
                f"{self.name} must lie in [{self.low!r}, {self.high!r}], got {show(value)}"
            )
        nearest = self.nearest(number)
        if nearest == number or (self.step and abs(nearest - number) <= TOLERANCE * self.step):
            return nearest
        raise SpaceError(
            f"{self.name} goes from {self.low!r} in steps of {self.step!r}, got {show(value)}; "
            f"the nearest value is {nearest!r}"
        )

    def key(self, value: Value) -> Hashable:
        return self.nearest(cast(float, value))

    @abstractmethod
    def nearest(self, value: float) -> float:
        """The value of this parameter that is nearest to a number."""

    def domain(self) -> dict[str, Any]:
        """Bounds, scale and step."""
        found: dict[str, Any] = {"low": self.low, "high": self.high}
        if self.log:
            found["log"] = True
        if self.step not in (None, 1) or (self.step and self.kind == "float"):
            found["step"] = self.step
        return found

    def _arguments(self) -> list[str]:
        extras = {key: value for key, value in self.domain().items() if key in ("log", "step")}
        bounds = [_short(self.low), _short(self.high)]
        return [*bounds, *(f"{key}={value!r}" for key, value in extras.items())]


def clipped(units: FloatArray) -> FloatArray:
    """Coordinates clipped to [0, 1]; NaN becomes 0.5."""
    inside: FloatArray = np.minimum(np.maximum(units, 0.0), 1.0)
    return np.where(np.isnan(inside), 0.5, inside)


def reflected(units: FloatArray) -> FloatArray:
    """Coordinates reflected at 0 and 1."""
    above = np.abs(units)
    return np.clip(np.where(above > 1.0, 2.0 - above, above), 0.0, 1.0)


def _short(number: float) -> str:
    """The number without a trailing .0, in full if six digits do not reproduce it."""
    if isinstance(number, int):
        return str(number)
    text = f"{number:g}"
    return text if float(text) == number else repr(number)
