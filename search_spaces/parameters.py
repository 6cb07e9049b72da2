"""The kinds of parameters: `Float`, `Int` and `Choice`, each with its map to the unit interval."""

import inspect
import json
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .plugins import nearest
from .validation import (
    Params,
    Value,
    When,
    check,
    checked_choices,
    checked_name,
    checked_when,
    identity,
    is_value,
    number_of,
    plain,
    same,
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
    "clipped",
    "parameter_from_dict",
    "reflected",
]

FloatArray = npt.NDArray[np.float64]
RawArray = npt.NDArray[Any]

ALL: Final = frozenset({"quality", "speed", "memory"})
MAX_INT: Final = 2**63 - 1
MAX_STEPS: Final = 2**49
EXACT: Final = 2**53  # whole numbers beyond are rounded in float64
MAX_DIGITS: Final = 15  # decimals to which values in steps are rounded, so that 0.1 * 3 is 0.3
TOLERANCE: Final = 1e-8  # of a step: how far rounding may move a value from its grid
_NO_DEFAULT: Final = inspect.Parameter.empty  # of a `Choice`, since None may be a choice


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
        self.when = checked_when(name, when)
        self.affects = frozenset([affects] if isinstance(affects, str) else affects)
        check(
            self.affects and self.affects <= ALL,
            f"affects of {name!r} must name at least one of quality, speed and memory, "
            f"got {show(affects)}",
        )
        self.has_default = has_default or default is not None
        try:
            self.default = self.accept(plain(default)) if self.has_default else None
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

    def from_units(self, units: FloatArray) -> list[Any]:
        """The nearest values to n coordinates, shape (n,); clips coordinates to [0, 1]."""
        return cast(list[Any], self.raw(units).tolist())

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
        data = self.to_dict()
        places = [data.pop(key) for key in ("name", "low", "high", "choices") if key in data]
        more = [f"{key}={value!r}" for key, value in data.items() if key != "type"]
        return f"{type(self).__name__}({', '.join([*map(_short, places), *more])})"

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

    low: Any
    high: Any
    step: Any
    _noun: ClassVar[str]

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
        self.name = name
        self.low, self.high = self._number("low", low), self._number("high", high)
        self.step = None if step is None else self._number("step", step)
        self.log = log
        check(
            self.low <= self.high,
            f"low of {show(name)} must not be above high, got low={self.low!r}, "
            f"high={self.high!r}; swap them",
        )
        check(
            not log or self.low > 0,
            f"low of {show(name)} must be above 0 on a log scale, got {self.low!r}; "
            "raise it or drop log=True",
        )
        check(step is None or self.step > 0, f"step of {show(name)} must be above 0, got {step!r}")
        check(
            not log or step is None or (step == 1 and self.kind == "int"),
            f"{show(name)} has a step of {step!r}, which a log scale cannot have; drop one of them",
        )
        self._scale()
        super().__init__(name, default=default, when=when, affects=affects)

    def _number(self, which: str, value: Any) -> float:
        """A bound or a step; raises SpaceError unless it is a number of this kind."""
        number, is_int = plain(value), self.kind == "int"
        fits = isinstance(number, int if is_int else int | float) and not isinstance(number, bool)
        rule = "an integer" if is_int else "a finite number"
        hint = "; an Int has whole numbers within plus or minus 2**63 - 1" if is_int else ""
        check(
            fits and abs(number) <= (MAX_INT if is_int else sys.float_info.max),
            f"{which} of {show(self.name)} must be {rule}, got {show(value)}{hint}",
        )
        return number if is_int else float(number)

    @abstractmethod
    def _scale(self) -> None:
        """Prepare the map to the unit interval."""

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
                return cast(float, bound)
        slack = TOLERANCE * self.step if self.step and isinstance(number, float) else 0
        check(
            self.low - slack <= number <= self.high + slack,
            f"{self.name} must lie in [{self.low!r}, {self.high!r}], got {show(value)}",
        )
        nearest = self.nearest(number)
        check(
            nearest == number or (self.step and abs(nearest - number) <= TOLERANCE * self.step),
            f"{self.name} goes from {self.low!r} in steps of {self.step!r}, got {show(value)}; "
            f"the nearest value is {nearest!r}",
        )
        return nearest

    def key(self, value: Value) -> Hashable:
        return self.nearest(cast(float, value))

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        return self.centres(np.asarray(values, dtype=np.float64))

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
    _noun = "a number"

    def _scale(self) -> None:
        self._count = 0  # of the values in steps
        if self.step is not None:
            self.gap = self.step
            short = float(f"{self.low:.12g}")  # 0.3 for 0.1 * 3
            self.low = short if math.isclose(short, self.low, rel_tol=4e-16) else self.low
            start, end, gap = (Decimal(repr(x)) for x in (self.low, self.high, self.step))
            self._count = int((end - start) / gap + Decimal(TOLERANCE)) + 1
            check(
                self._count < MAX_STEPS,
                f"{show(self.name)} has too many steps of {self.step!r} between {start} and {end}: "
                "make them larger, or drop the step",
            )
            self.high = float(start + (self._count - 1) * gap)
            self._digits = max(0, *(-cast(int, x.as_tuple().exponent) for x in (start, gap)))
            if max(-self.low, self.high) > 2**49 / 10.0 ** min(self._digits, MAX_DIGITS):
                self._digits = MAX_DIGITS + 1  # rounding would move them
        # Halved, so that the width of the widest interval is finite.
        self._begin = math.log(self.low) if self.log else self.low / 2
        self._end = math.log(self.high) if self.log else self.high / 2

    @property
    def size(self) -> int | None:
        """Number of values in steps; without a step, 1 if low equals high, else None."""
        return 1 if self.low == self.high else self._count or None

    def nearest(self, value: float) -> float:
        inside = min(max(float(value), self.low), self.high)
        if self.step is None:
            return cast(float, inside)
        return float(self._stepped(np.rint((inside - self.low) / self.step)))

    def centres(self, raw: RawArray) -> FloatArray:
        if self._begin == self._end:
            return np.full(raw.shape, 0.5)
        if self.step is not None:
            return clipped((np.rint((raw - self.low) / self.step) + 0.5) / self._count)
        scaled = np.log(np.maximum(raw, self.low)) if self.log else raw / 2
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        u = clipped(units)
        if self.step is not None:
            return self._stepped(np.minimum(np.floor(u * self._count), self._count - 1))
        if self.log:
            values = np.exp(self._begin + u * (self._end - self._begin))
        else:
            values = self.low * (1.0 - u) + self.high * u
        # Rounding must not move the ends.
        values = np.minimum(np.maximum(values, self.low), self.high)
        ended = np.where(u <= 0.0, self.low, np.where(u >= 1.0, self.high, values))
        return cast(FloatArray, ended)

    def values(self) -> list[float]:
        """Every value in steps; raises SpaceError if there are infinitely many."""
        check(self.size, f"{self.name} has infinitely many values")
        cells = np.arange(self._count, dtype=np.float64)
        return [self.low] if self.step is None else cast(list[float], self._stepped(cells).tolist())

    def _stepped(self, cells: FloatArray) -> FloatArray:
        """The values of cells that are counted from 0."""
        values = self.low + cells * self.step
        values = np.round(values, self._digits) if self._digits <= MAX_DIGITS else values
        inside = np.minimum(values, self.high)
        return cast(FloatArray, np.where(cells < self._count - 1, inside, self.high))


class Int(NumberParameter):
    """An integer in [low, high], on a logarithmic scale if `log`.

    Value v owns the cell from v - 0.5 to v + 0.5 of the scale and is encoded as its centre. If
    there are more than about 10**13 values, neighbours may share a coordinate. With a `step` the
    values are low, low + step and so on, and `high` becomes the last of them.
    """

    kind = "int"
    _noun = "an integer"

    def _scale(self) -> None:
        self.gap = self.step = self.step or 1
        self.high -= (self.high - self.low) % self.step
        # If the bounds are close, both scales agree, and the linear one separates neighbours.
        self._curved = self.log and self.high > self.low * (1 + 1e-6)
        self._begin = math.log(self.low - 0.5) if self._curved else 0.0
        self._end = math.log(self.high + 0.5) if self._curved else float(self.size)
        self._is_large = max(-self.low, self.high) > EXACT

    @property
    def size(self) -> int:
        """Number of values."""
        return cast(int, (self.high - self.low) // self.step + 1)

    def nearest(self, value: float) -> int:
        inside = min(max(value, self.low), self.high)
        whole = inside if isinstance(inside, int) else round(inside)
        cells = (2 * (whole - self.low) + self.step) // (2 * self.step)
        return cast(int, min(self.low + cells * self.step, self.high))

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        exact = self._is_large and not self._curved
        return self.centres(np.array(values, dtype=object if exact else np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        if not self._curved:
            cells = np.asarray((raw - self.low) / self.step, dtype=np.float64)
            return clipped((cells + 0.5) / self._end)
        v = np.maximum(raw, self.low)
        scaled = np.log(v) + 0.5 * np.log1p(-0.25 / v**2)
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        if self._is_large:
            return np.array(self.from_units(units), dtype=np.float64)
        cells = np.floor(self._cells(units))
        values = cells if self._curved else cells * self.step + float(self.low)
        return cast(FloatArray, np.minimum(np.maximum(values, self.low), self.high))

    def _cells(self, units: FloatArray) -> FloatArray:
        """Positions that floor to the value on a logarithmic scale, else to the steps from low."""
        scaled = self._begin + clipped(units) * (self._end - self._begin)
        return np.exp(scaled) + 0.5 if self._curved else scaled

    def from_units(self, units: FloatArray) -> list[int]:
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


class Choice(Parameter):
    """One of a list of bools, ints, floats, strings, None, or lists of these.

    Choice i of k is encoded as (i + 0.5) / k. A list is a tuple in a configuration:
    `trial.params["widths"] == (64, 64)`.

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
        default: Any = _NO_DEFAULT,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.choices = checked_choices(name, choices)
        self.ordered = ordered
        self._index = {identity(choice): i for i, choice in enumerate(self.choices)}
        self.takes_none = None in self.choices
        given = None if default is _NO_DEFAULT else default
        none = self.takes_none and default is None
        super().__init__(name, default=given, when=when, affects=affects, has_default=none)

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.choices)

    def index(self, value: Any, *, text: bool = False) -> int:
        """Position in the list of the choice that `accept` returns."""
        given = plain(value)
        is_text, found = isinstance(given, str), None
        if is_value(given) and not (text and is_text):
            found = self._index.get(identity(given))
        if is_value(given) and found is None:
            found = self._named(given) if is_text else self._near(given)
        if found is None:
            listed = ", ".join(map(repr, self.choices[:20]))
            more = ", ..." if len(self.choices) > 20 else ""
            raise SpaceError(f"{self.name} must be one of {listed}{more}; got {show(value)}")
        return found

    def _near(self, value: Value) -> int | None:
        return next((i for i, choice in enumerate(self.choices) if same(choice, value)), None)

    def _named(self, text: str) -> int | None:
        """The index of the choice that a text is."""
        for form in (text, _bare(text)):
            if form in self._by_text:
                return self._by_text[form]
        number = number_of(text)
        return None if number is None else self._near(number)

    @cached_property
    def _by_text(self) -> dict[str, int]:
        """The texts of the choices: in JSON, in Python, then as people write them."""
        found: dict[str, int] = {}
        for form in (json.dumps, _in_python, str, _bare, lambda choice: _bare(json.dumps(choice))):
            for i, choice in enumerate(self.choices):
                if form in (json.dumps, _in_python, str) or not isinstance(choice, str):
                    found.setdefault(form(choice), i)
        if self.takes_none:
            found.setdefault("", self.choices.index(None))
        return found

    def accept(self, value: Any, *, text: bool = False) -> Value:
        return self.choices[self.index(value, text=text)]

    def text(self, value: Value) -> str:
        index = self.index(value)
        plainly = str(self.choices[index])
        return plainly if self._by_text[plainly] == index else json.dumps(self.choices[index])

    def key(self, value: Value) -> Hashable:
        return self.index(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`; raises SpaceError if a value is not a choice."""
        return self.centres(np.array([self.index(value) for value in values], dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        return (raw + 0.5) / len(self.choices)

    def raw(self, units: FloatArray) -> npt.NDArray[np.int64]:
        num_choices = len(self.choices)
        return np.minimum((clipped(units) * num_choices).astype(np.int64), num_choices - 1)

    def from_units(self, units: FloatArray) -> list[Value]:
        return [self.choices[i] for i in self.raw(units).tolist()]

    def values(self) -> list[Value]:
        """The choices."""
        return list(self.choices)

    def middle(self) -> Value:
        """The default if there is one, else the first choice."""
        return self.default if self.has_default else self.choices[0]

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


KINDS: Final[Mapping[str, type[Float] | type[Int] | type[Choice]]] = {
    c.kind: c for c in (Float, Int, Choice)
}


def parameter_from_dict(data: Any) -> Parameter:
    """The inverse of `Parameter.to_dict`.

    Raises:
        SpaceError: the data do not describe a parameter.
    """
    check(
        isinstance(data, Mapping) and data.get("type") in list(KINDS),
        f"a parameter is an object whose type is one of {', '.join(KINDS)}; got {show(data)}",
    )
    arguments = {key: value for key, value in data.items() if key != "type"}
    known = list(inspect.signature(KINDS[data["type"]]).parameters)
    if unknown := [key for key in arguments if key not in known]:
        hint = nearest(unknown[0], known)
        raise SpaceError(f"{data.get('name')}: a {data['type']} takes no {unknown[0]!r}; {hint}")
    try:
        return KINDS[data["type"]](**arguments)
    except TypeError as error:
        raise SpaceError(f"malformed {data['type']} parameter {show(data)}: {error}") from None


def clipped(units: FloatArray) -> FloatArray:
    """Coordinates clipped to [0, 1]; NaN becomes 0.5."""
    inside: FloatArray = np.minimum(np.maximum(units, 0.0), 1.0)
    return np.where(np.isnan(inside), 0.5, inside)


def reflected(units: FloatArray) -> FloatArray:
    """Coordinates reflected at 0 and 1."""
    above = np.abs(units)
    return np.clip(np.where(above > 1.0, 2.0 - above, above), 0.0, 1.0)


def _short(value: Any) -> str:
    """A number without a trailing .0, in full if six digits do not reproduce it; else its repr."""
    return (
        f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)
    )


def _in_python(value: Value) -> str:
    """A text that no string is, unless it is quoted."""
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _bare(value: Value) -> str:
    """What people may write in another way: without spaces, quotes and capitals."""
    return "bare " + re.sub(r"[\s'\"]", "", str(value)).lower()
