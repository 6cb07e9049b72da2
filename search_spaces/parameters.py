"""The kinds of parameters: `Float`, `Int` and `Choice`, each with its map to the unit interval."""

import inspect
import json
import math
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, ClassVar, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import WORDS, SpaceError, hinted
from .plugins import nearest
from .values import (
    Params,
    Value,
    When,
    check,
    checked_when,
    identity,
    is_value,
    meanings,
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
EXACT: Final = 2**53  # whole numbers beyond are rounded in float64
MAX_NAME: Final = 100  # characters
MAX_DIGITS: Final = 15  # decimals to which values in steps are rounded, so that 0.1 * 3 is 0.3
TOLERANCE: Final = 1e-8  # of a step: how far rounding may move a value from its grid
_NO_DEFAULT: Final = ...  # of a `Choice`, since None may be a choice


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
        step: difference of neighbouring values of a discrete parameter in `raw`.
    """

    kind: ClassVar[str]
    step: Any = 1

    def __init__(
        self,
        name: str,
        *,
        default: Value | None,
        when: When | None,
        affects: str | Iterable[str] = ALL,
        has_default: bool = False,
    ) -> None:
        parts = name.split(".") if isinstance(name, str) and len(name) <= MAX_NAME else [""]
        check(
            all(p.replace("-", "_").isidentifier() and p.strip("-") == p for p in parts)
            and unicodedata.normalize("NFKC", name) == name,
            "a parameter's name is made of letters, digits and underscores, with hyphens between "
            "them, does not begin with a digit, may join such parts by dots (model.lr), "
            f"and has at most {MAX_NAME} characters; got {show(name)}",
        )
        self.name = str(name)
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
        sign = np.where(rng.random(len(units)) < 0.5, -1, 1)
        sign = np.where(before == low, 1, np.where(before == high, -1, sign))
        return self.centres(np.where(after == before, before + sign * self.step, after))

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

    @abstractmethod
    def key(self, value: Value) -> Hashable:
        """Identity of one of the values."""

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

    @hinted
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
        self.log = log
        self._is_int = self.kind == "int"
        self._type: Any = int if self._is_int else float
        self.low: Any = self._number(f"low of {show(name)}", low)
        self.high: Any = self._number(f"high of {show(name)}", high)
        self.step = None if step is None else self._number(f"step of {show(name)}", step)
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
            not log or step is None or (step == 1 and self._is_int),
            f"{show(name)} has a step of {step!r}, which a log scale cannot have; drop one of them",
        )
        if self._is_int:
            self.step = self.step or 1
        self._count: Any = None if self.step is None else self._count_steps(name)
        # If the bounds of an `Int` are close, both scales agree; the linear one tells neighbours.
        is_curved = log and self.high > self.low * (1 + 1e-6)
        self._in_steps = self.step is not None and not is_curved
        half = 0.5 if self._is_int else 0.0  # an integer owns what is rounded to it
        ends = (self.low - half, self.high + half)
        # Halved, so that the width of the widest interval is finite.
        self._begin, self._end = map(math.log, ends) if log else (self.low / 2, self.high / 2)
        super().__init__(name, default=default, when=when, affects=affects)

    def _number(self, which: str, value: Any) -> float:
        number, most = plain(value), EXACT // 2 if self._is_int else sys.float_info.max
        fits = isinstance(number, int if self._is_int else int | float)
        rule = "an integer" if self._is_int else "a finite number"
        hint = "; an Int has whole numbers within plus or minus 2**52" if self._is_int else ""
        check(
            fits and not isinstance(number, bool) and abs(number) <= most,
            f"{which} must be {rule}, got {show(value)}{hint}"
            + ("; choices are a list: ['a', 'b']" if isinstance(number, str | bool) else ""),
        )
        return cast(float, self._type(number))

    def _count_steps(self, name: str) -> int:
        """The number of values; `high` becomes the last of them, and 0.1 * 3 as `low` 0.3."""
        short = self._type(float(f"{self.low:.12g}"))
        self.low = short if math.isclose(short, self.low, rel_tol=4e-16) else self.low
        start, end, gap = (Decimal(repr(x)) for x in (self.low, self.high, self.step))
        count = int((end - start) / gap + Decimal(0 if self._is_int else TOLERANCE)) + 1
        check(
            count <= EXACT + 1,
            f"{show(name)} has too many steps of {self.step!r} between {start} and {end}: "
            "make them larger, or drop the step",
        )
        self.high = self._type(start + (count - 1) * gap)
        self._digits = max(0, *(-cast(int, x.as_tuple().exponent) for x in (start, gap)))
        if max(-self.low, self.high) > 2**49 / 10.0 ** min(self._digits, MAX_DIGITS):
            self._digits = MAX_DIGITS + 1  # rounding would move them
        return count

    @property
    def size(self) -> int | None:
        return cast(int | None, 1 if self.low == self.high else self._count)

    def accept(self, value: Any, *, text: bool = False) -> float:
        number: Any = number_of(value) if isinstance(value, str) else plain(value)
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        nearest = self.nearest(number) if is_number else self.low
        slack = TOLERANCE * (self.step or 0)
        inside = is_number and self.low - slack <= number <= self.high + slack
        if abs(nearest - number) <= slack if inside else is_number and same(nearest, number):
            return nearest
        said = f"must lie in [{self.low!r}, {self.high!r}], got {show(value)}"
        if not is_number or (self._is_int and number % 1):
            noun = "an integer" if self._is_int else "a number"
            said = f"must be {noun}, got {show(value)} ({type(value).__name__})"
        elif inside:
            said = (
                f"goes from {self.low!r} in steps of {self.step!r}, got {show(value)}; "
                f"the nearest value is {nearest!r}"
            )
        raise SpaceError(f"{self.name} {said}")

    def nearest(self, value: float) -> float:
        """The value of this parameter that is nearest to a number."""
        inside = max(self.low, min(value, self.high))
        if self.step is None:
            return float(inside)
        cell = round((inside - self.low) / self.step)
        whole: int = self.low + cell * self.step
        return whole if self._is_int else float(self._stepped(np.float64(cell)))

    def key(self, value: Value) -> Hashable:
        return self.nearest(cast(float, value))

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        return self.centres(np.asarray(values, dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        if self._in_steps:
            return clipped((np.rint((raw - self.low) / self.step) + 0.5) / self._count)
        if self._begin == self._end:
            return np.full(raw.shape, 0.5)
        inside = np.maximum(raw, self.low)
        scaled = np.log(inside) if self.log else raw / 2
        if self._is_int:
            scaled = scaled + 0.5 * np.log1p(-0.25 / inside**2)
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        u = clipped(units)
        if self._in_steps:
            return self._stepped(np.minimum(np.floor(u * self._count), self._count - 1))
        if self.log:
            values = np.exp(self._begin + u * (self._end - self._begin))
        else:
            values = self.low * (1.0 - u) + self.high * u
        values = np.floor(values + 0.5) if self._is_int else values
        # Rounding must not move the ends.
        values = np.minimum(np.maximum(values, self.low), self.high)
        ended = np.where(u <= 0.0, self.low, np.where(u >= 1.0, self.high, values))
        return cast(FloatArray, ended)

    def _stepped(self, cells: Any) -> FloatArray:
        """The values of cells that are counted from 0."""
        values = self.low + cells * self.step
        values = np.round(values, self._digits) if self._digits <= MAX_DIGITS else values
        inside = np.minimum(values, self.high)
        return cast(FloatArray, np.where(cells < self._count - 1, inside, self.high))

    def from_units(self, units: FloatArray) -> list[Any]:
        return cast(list[Any], self.raw(units).astype(self._type).tolist())

    def values(self) -> list[Any]:
        check(self.size, f"{self.name} has infinitely many values")
        cells = np.arange(self._count or 0, dtype=np.float64)
        found = self._stepped(cells) if self.step else np.array([self.low])
        return cast(list[Any], found.astype(self._type).tolist())

    def weights(self, values: Sequence[Value]) -> FloatArray:
        if self._in_steps or not self._is_int:
            return super().weights(values)
        v = np.asarray(values, dtype=np.float64)
        return (np.log(v + 0.5) - np.log(v - 0.5)) / (self._end - self._begin)

    def domain(self) -> dict[str, Any]:
        found = {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}
        is_usual = self.step is None or (self._is_int and self.step == 1)
        return found if is_usual else {**found, "step": self.step}


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


class Int(NumberParameter):
    """An integer in [low, high], on a logarithmic scale if `log`; within plus or minus 2**52.

    Value v owns the cell from v - 0.5 to v + 0.5 of the scale and is encoded as its centre. If
    there are more than about 10**13 values, neighbours may share a coordinate. With a `step` the
    values are low, low + step and so on, and `high` becomes the last of them.
    """

    kind = "int"


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

    @hinted
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
        is_list = isinstance(choices, Iterable) and not isinstance(
            choices, str | bytes | Mapping | Set
        )
        check(is_list, f"choices of {show(name)} must be a list, got {show(choices)}")
        self.choices: tuple[Value, ...] = tuple(map(plain, choices))
        check(
            self.choices and all(map(is_value, self.choices)),
            f"each choice of {show(name)} must be a bool, an int, a finite float, a string, None, "
            f"or a list of these, and there must be one; got {show(choices)}",
        )
        self.ordered = ordered
        self._index = {identity(choice): i for i, choice in enumerate(self.choices)}
        check(
            len(self._index) == len(self.choices),
            f"choices of {show(name)} must differ, got {show(choices)}; drop one",
        )
        given = None if default is _NO_DEFAULT else default
        none = None in self.choices and default is None
        super().__init__(name, default=given, when=when, affects=affects, has_default=none)

    @property
    def size(self) -> int:
        return len(self.choices)

    def index(self, value: Any, *, text: bool = False) -> int:
        """Position in the list of the choice that `accept` returns."""
        given = plain(value)
        meant = meanings(given) if isinstance(given, str) else []
        for one in filter(is_value, meant if text and meant else [given, *meant]):
            if identity(one) in self._index:
                return self._index[identity(one)]
            for i, choice in enumerate(self.choices):
                if same(choice, one):
                    return i
        listed = ", ".join(map(repr, self.choices[:20]))
        more = ", ..." if len(self.choices) > 20 else ""
        raise SpaceError(f"{self.name} must be one of {listed}{more}; got {show(value)}")

    def accept(self, value: Any, *, text: bool = False) -> Value:
        return self.choices[self.index(value, text=text)]

    def text(self, value: Value) -> str:
        own = self.accept(value)
        meant = self.accept(str(own), text=True)
        return str(own) if identity(meant) == identity(own) else json.dumps(own)

    def key(self, value: Value) -> Hashable:
        return self.index(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        return self.centres(np.array([self.index(value) for value in values], dtype=np.float64))

    def centres(self, raw: RawArray) -> FloatArray:
        return (raw + 0.5) / len(self.choices)

    def raw(self, units: FloatArray) -> npt.NDArray[np.int64]:
        num_choices = len(self.choices)
        return np.minimum((clipped(units) * num_choices).astype(np.int64), num_choices - 1)

    def from_units(self, units: FloatArray) -> list[Value]:
        return [self.choices[i] for i in self.raw(units).tolist()]

    def values(self) -> list[Value]:
        return list(self.choices)

    def middle(self) -> Value:
        return self.default if self.has_default else self.choices[0]

    def perturb(self, units: FloatArray, rng: np.random.Generator) -> FloatArray:
        num_choices = len(self.choices)
        if self.ordered or num_choices == 1:
            return super().perturb(units, rng)
        return self.centres(
            (self.raw(units) + rng.integers(1, num_choices, size=len(units))) % num_choices
        )

    def domain(self) -> dict[str, Any]:
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
        hint = WORDS.get(unknown[0]) or nearest(unknown[0], known)
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
