"""The kinds of parameters: `Float`, `Int` and `Choice`, each with its map to the unit interval."""

import inspect
import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from enum import Enum
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .parameter_base import (
    TOLERANCE,
    FloatArray,
    NumberParameter,
    Parameter,
    RawArray,
    clipped,
)
from .plugins import nearest
from .validation import (
    ALL,
    Params,
    Value,
    When,
    check,
    check_bounds,
    checked_bound,
    checked_choices,
    checked_flag,
    checked_int_bound,
    checked_step,
    identity,
    is_value,
    number_of,
    plain,
    same,
    show,
)

MAX_EXPONENT: Final = 307  # of the number of steps, and of the width of a range in steps
EXACT: Final = 2**53  # whole numbers beyond are rounded in float64
MAX_DIGITS: Final = 15  # decimals to which values in steps are rounded, so that 0.1 * 3 is 0.3


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
            self.low = _without_rounding(self.low)
            start, end, gap = (Decimal(repr(x)) for x in (self.low, self.high, self.step))
            with localcontext(prec=2 * MAX_EXPONENT, Emax=MAX_EMAX, Emin=MIN_EMIN):
                self._count = int((end - start) / gap + Decimal(TOLERANCE)) + 1
                check(
                    max(end - start, self._count) < 10**MAX_EXPONENT,
                    f"{show(name)} has too many steps of {step!r} between {start} and {end}: "
                    "make them larger, or drop the step",
                )
                self.high = float(start + (self._count - 1) * gap)
            self._digits = max(0, *(-cast(int, x.as_tuple().exponent) for x in (start, gap)))
            if max(-self.low, self.high) > 2**49 / 10.0 ** min(self._digits, MAX_DIGITS):
                self._digits = MAX_DIGITS + 1  # rounding would move them
        # Halved, so that the width of the widest interval is finite.
        self._begin = math.log(self.low) if log else self.low / 2
        self._end = math.log(self.high) if log else self.high / 2
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int | None:
        """Number of values in steps; without a step, 1 if low equals high, else None."""
        return 1 if self.low == self.high else self._count or None

    def nearest(self, value: float) -> float:
        if self.step is None:
            return min(max(float(value), self.low), self.high)
        inside = min(max(value, self.low), self.high)
        return float(self._stepped(np.rint((inside - self.low) / self.step)))

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        return self.centres(np.asarray(values, dtype=np.float64))

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
        return np.where(u <= 0.0, self.low, np.where(u >= 1.0, self.high, values))

    def from_units(self, units: FloatArray) -> list[float]:
        return cast(list[float], self.raw(units).tolist())

    def values(self) -> list[float]:
        """Every value in steps; raises SpaceError if there are infinitely many."""
        check(self.size, f"{self.name} has infinitely many values")
        if self.step is None:
            return [self.low]
        return cast(list[float], self._stepped(np.arange(self._count, dtype=np.float64)).tolist())

    def _stepped(self, cells: FloatArray) -> FloatArray:
        """The values of cells that are counted from 0."""
        values = self.low + cells * cast(float, self.step)
        values = np.round(values, self._digits) if self._digits <= MAX_DIGITS else values
        return np.where(cells < self._count - 1, np.minimum(values, self.high), self.high)


def _without_rounding(number: float) -> float:
    """0.3 for 0.1 * 3: the number of few digits that this one is, up to rounding."""
    short = float(f"{number:.12g}")
    return short if math.isclose(short, number, rel_tol=4e-16) else number


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
        inside = min(max(value, self.low), self.high)
        whole = inside if isinstance(inside, int) else round(inside)
        cells = (2 * (whole - self.low) + self.step) // (2 * self.step)
        return min(self.low + cells * self.step, self.high)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        if self._curved:
            return self.centres(np.asarray(values, dtype=np.float64))
        cells = np.array([value - self.low for value in values], dtype=np.float64)  # type: ignore[operator]
        return clipped((cells / self.step + 0.5) / self._end)

    def centres(self, raw: RawArray) -> FloatArray:
        if not self._curved:
            return clipped(((raw - self.low) / self.step + 0.5) / self._end)
        v = np.maximum(raw, self.low)
        scaled = np.log(v) + 0.5 * np.log1p(-0.25 / v**2)
        return clipped((scaled - self._begin) / (self._end - self._begin))

    def raw(self, units: FloatArray) -> FloatArray:
        if max(-self.low, self.high) > EXACT:
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

_KINDS_OF_VALUES: Final = (bool, int, float, str, tuple, type(None))


class _Unset(Enum):
    """The default of a `Choice` that has none, because None may be a choice."""

    UNSET = "no default"


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
        default: Value | _Unset = _Unset.UNSET,
        when: When | None = None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.choices = checked_choices(name, choices)
        self.ordered = checked_flag(name, "ordered", ordered)
        self._index = {identity(choice): i for i, choice in enumerate(self.choices)}
        self.takes_none = None in self.choices
        given = None if isinstance(default, _Unset) else default
        none = self.takes_none and default is None
        super().__init__(name, default=given, when=when, affects=affects, has_default=none)

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.choices)

    def index(self, value: Any, *, text: bool = False) -> int:
        """Position in the list of the choice that `accept` returns."""
        given = plain(value)
        found = None
        if isinstance(given, _KINDS_OF_VALUES) and is_value(given):
            if not (text and isinstance(given, str)):
                found = self._index.get(identity(given))
            if found is None and isinstance(given, str):
                found = self._named(given)
            elif found is None:
                found = self._near(given)
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
        try:
            indices = [self._index[value.__class__ is bool, value] for value in values]
        except (KeyError, TypeError):  # a list, or in another form
            indices = [self.index(value) for value in values]
        return self.centres(np.array(indices, dtype=np.float64))

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

    def _arguments(self) -> list[str]:
        return [repr(list(self.choices)), *(["ordered=True"] if self.ordered else [])]


def _in_python(value: Value) -> str:
    """A text that no string is, unless it is quoted."""
    return repr(list(value)) if isinstance(value, tuple) else repr(value)


def _bare(value: Value) -> str:
    """What people may write in another way: without spaces, quotes and capitals."""
    return "bare " + re.sub(r"[\s'\"]", "", str(value)).lower()


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
