"""What one parameter may be: `Float`, `Int` and `Choice`, each with its own map to the unit interval."""

from __future__ import annotations

import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from .errors import SpaceError

Value = bool | int | float | str
Params = Mapping[str, Value]
FloatArray = npt.NDArray[np.float64]
When = Mapping[str, Value | Sequence[Value]]

ALL: Final = frozenset({"quality", "speed", "memory"})
MAX_INT: Final = 2**63 - 1
MAX_NAME: Final = 100


class Parameter(ABC):
    """A name, the values that it may take, and when it is there at all. Immutable by convention.

    Args:
        name: an identifier, so that constraints can name it.
        default: the value of trial 0, None where there is none.
        when: for each parent the value, or the values of which any will do, under which this parameter is
            active; several parents must all hold. None where it is always active.
        affects: which of "quality", "speed" and "memory" it can change.

    Raises:
        SpaceError: an argument is not well formed.
    """

    kind: ClassVar[str]

    def __init__(
        self, name: str, *, default: Value | None, when: When | None, affects: str | Iterable[str] = ALL
    ) -> None:
        self.name = _name(name)
        self.when = _when(self.name, when)
        self.affects = _affects(self.name, affects)
        self.default = None if default is None else self._canonical_default(default)

    def _canonical_default(self, default: Value) -> Value:
        try:
            self.check(default)
        except SpaceError as error:
            raise SpaceError(f"the default of {error}") from None
        return self.canonical(default)

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many values there are; None where there are infinitely many."""

    @abstractmethod
    def check(self, value: Any) -> None:
        """Raise SpaceError where the value is not one of this parameter's."""

    @abstractmethod
    def canonical(self, value: Value) -> Value:
        """The value as this parameter writes it: a float for `Float`, the choice itself for `Choice`."""

    @abstractmethod
    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """Coordinates in [0, 1] of n values, shape (n,); a discrete value's is the centre of its cell."""

    @abstractmethod
    def from_units(self, units: FloatArray) -> list[Any]:
        """The nearest values of n coordinates, shape (n,); coordinates outside of [0, 1] are clipped."""

    @abstractmethod
    def domain(self) -> dict[str, Any]:
        """What this kind has beside name, default, when and affects, as JSON."""

    def to_unit(self, value: Value) -> float:
        """As `to_units`, of one value."""
        return float(self.to_units([value])[0])

    def from_unit(self, unit: float) -> Value:
        """As `from_units`, of one coordinate."""
        value: Value = self.from_units(np.array([unit], dtype=np.float64))[0]
        return value

    def middle(self) -> Value:
        """The default, else the value in the middle."""
        return self.from_unit(0.5) if self.default is None else self.default

    def legal(self, value: Any) -> bool:
        """Whether the value is one of this parameter's."""
        try:
            self.check(value)
        except SpaceError:
            return False
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON; the inverse is `parameter_from_dict`."""
        data: dict[str, Any] = {"type": self.kind, "name": self.name, **self.domain()}
        if self.default is not None:
            data["default"] = self.default
        if self.when:
            data["when"] = {parent: list(values) for parent, values in self.when.items()}
        if self.affects != ALL:
            data["affects"] = sorted(self.affects)
        return data

    def __repr__(self) -> str:
        extras = [f"default={self.default!r}"] if self.default is not None else []
        if self.when:
            when = {p: v[0] if len(v) == 1 else list(v) for p, v in self.when.items()}
            extras.append(f"when={when!r}")
        if self.affects != ALL:
            extras.append(f"affects={{{', '.join(map(repr, sorted(self.affects)))}}}")
        return f"{type(self).__name__}({', '.join([repr(self.name), *self._arguments(), *extras])})"

    @abstractmethod
    def _arguments(self) -> list[str]: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameter) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.default))


class Float(Parameter):
    """A real number in [low, high], on a logarithmic scale where `log`.

    Example:
        >>> Float("learning_rate", 1e-5, 1e-1, log=True).from_unit(0.5)
        0.001
    """

    kind = "float"

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
        self.low, self.high = _bound(name, "low", low), _bound(name, "high", high)
        self.log = _flag(name, "log", log)
        _check_bounds(name, self.low, self.high, self.log)
        # Halved, so that the width of the widest interval is finite.
        self._begin, self._end = (math.log(self.low), math.log(self.high)) if log else (self.low / 2, self.high / 2)
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int | None:
        """1 where low equals high, else None."""
        return 1 if self.low == self.high else None

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is a finite number within the bounds."""
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise SpaceError(f"{self.name} must be a number, got {_show(value)}")
        if not self.low <= value <= self.high:
            raise SpaceError(f"{self.name} must lie in [{self.low!r}, {self.high!r}], got {_show(value)}")

    def canonical(self, value: Value) -> float:
        """The value as a float."""
        return float(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        array = np.asarray(values, dtype=np.float64)
        if self._begin == self._end:
            return np.full(array.shape, 0.5)
        scaled = np.log(np.clip(array, self.low, self.high)) if self.log else array / 2
        units: FloatArray = np.clip((scaled - self._begin) / (self._end - self._begin), 0.0, 1.0)
        return units

    def from_units(self, units: FloatArray) -> list[float]:
        """See `Parameter.from_units`."""
        u = np.clip(units, 0.0, 1.0)
        if self.log:
            values = np.exp(self._begin + u * (self._end - self._begin))
        else:
            values = self.low * (1.0 - u) + self.high * u
        # Rounding must not move the ends.
        values = np.where(u <= 0.0, self.low, np.where(u >= 1.0, self.high, np.clip(values, self.low, self.high)))
        found: list[float] = values.tolist()
        return found

    def domain(self) -> dict[str, Any]:
        """Bounds and scale."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}

    def _arguments(self) -> list[str]:
        return [f"{self.low:g}", f"{self.high:g}", *(["log=True"] if self.log else [])]


class Int(Parameter):
    """An integer in [low, high], on a logarithmic scale where `log`.

    Value v owns the cell from v - 0.5 to v + 0.5 of the scale and is encoded as the centre of its cell. Beyond
    2**53 values neighbours share a coordinate.
    """

    kind = "int"

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
        self.low, self.high = _int_bound(name, "low", low), _int_bound(name, "high", high)
        self.log = _flag(name, "log", log)
        _check_bounds(name, self.low, self.high, self.log)
        self._begin, self._end = (
            (math.log(self.low - 0.5), math.log(self.high + 0.5)) if log else (0.0, float(self.high - self.low + 1))
        )
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int:
        """Number of integers."""
        return self.high - self.low + 1

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is an int (not a bool, not a float) within the bounds."""
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
            raise SpaceError(f"{self.name} must be an integer, got {_show(value)}")
        if not self.low <= value <= self.high:
            raise SpaceError(f"{self.name} must lie in [{self.low}, {self.high}], got {_show(value)}")

    def canonical(self, value: Value) -> int:
        """The value as an int."""
        return int(value)

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`."""
        if self.low == self.high:
            return np.full(len(values), 0.5)
        if self.log:
            v = np.maximum(np.asarray(values, dtype=np.float64), self.low)
            scaled = np.log(v) + 0.5 * np.log1p(-0.25 / v**2)
        else:
            scaled = np.array([value - self.low for value in values], dtype=np.float64) + 0.5  # type: ignore[operator]
        units: FloatArray = np.clip((scaled - self._begin) / (self._end - self._begin), 0.0, 1.0)
        return units

    def from_units(self, units: FloatArray) -> list[int]:
        """See `Parameter.from_units`."""
        scaled = self._begin + np.clip(units, 0.0, 1.0) * (self._end - self._begin)
        low, high = self.low, self.high
        if self.log:
            cells = np.floor(np.exp(scaled) + 0.5).tolist()
            return [min(max(int(cell), low), high) for cell in cells]
        return [min(low + int(cell), high) for cell in scaled.tolist()]

    def domain(self) -> dict[str, Any]:
        """Bounds and scale."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}

    def _arguments(self) -> list[str]:
        return [str(self.low), str(self.high), *(["log=True"] if self.log else [])]


class Choice(Parameter):
    """One of a list of bools, ints, floats or strings; `ordered` where neighbours in the list are alike.

    Choice i of k is encoded as (i + 0.5) / k.
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
        self.choices = _choices(name, choices)
        self.ordered = _flag(name, "ordered", ordered)
        self._index = {choice: i for i, choice in enumerate(self.choices)}
        super().__init__(name, default=default, when=when, affects=affects)

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.choices)

    def index(self, value: Value) -> int:
        """Position of the value in the list; raises SpaceError where it is none of it."""
        found = self._index.get(value) if isinstance(value, bool | int | float | str) else None
        if found is None or isinstance(value, bool) is not isinstance(self.choices[found], bool):
            listed = ", ".join(map(repr, self.choices[:20])) + (", ..." if len(self.choices) > 20 else "")
            raise SpaceError(f"{self.name} must be one of {listed}; got {_show(value)}")
        return found

    def check(self, value: Any) -> None:
        """Raise SpaceError unless the value is one of the choices (True is not 1)."""
        self.index(value)

    def canonical(self, value: Value) -> Value:
        """The choice that equals the value."""
        return self.choices[self.index(value)]

    def to_units(self, values: Sequence[Value]) -> FloatArray:
        """See `Parameter.to_units`; raises SpaceError where a value is none of the choices."""
        try:
            indices = [self._index[value] for value in values]
        except (KeyError, TypeError):
            indices = [self.index(value) for value in values]
        return (np.array(indices, dtype=np.float64) + 0.5) / len(self.choices)

    def from_units(self, units: FloatArray) -> list[Value]:
        """See `Parameter.from_units`."""
        num_choices = len(self.choices)
        indices = np.minimum((np.clip(units, 0.0, 1.0) * num_choices).astype(np.int64), num_choices - 1)
        choices = self.choices
        return [choices[i] for i in indices.tolist()]

    def domain(self) -> dict[str, Any]:
        """Choices and whether they are ordered."""
        return {"choices": list(self.choices), **({"ordered": True} if self.ordered else {})}

    def _arguments(self) -> list[str]:
        return [repr(list(self.choices)), *(["ordered=True"] if self.ordered else [])]


KINDS: Final[Mapping[str, type[Float] | type[Int] | type[Choice]]] = {c.kind: c for c in (Float, Int, Choice)}


def parameter_from_dict(data: Any) -> Parameter:
    """The inverse of `Parameter.to_dict`.

    Raises:
        SpaceError: the data are not those of a parameter.
    """
    if not isinstance(data, Mapping) or data.get("type") not in KINDS:
        raise SpaceError(f"a parameter is an object whose type is one of {', '.join(KINDS)}; got {_show(data)}")
    arguments = {key: value for key, value in data.items() if key != "type"}
    try:
        return KINDS[data["type"]](**arguments)
    except TypeError as error:
        raise SpaceError(f"malformed {data['type']} parameter {_show(data)}: {error}") from None


def is_value(value: object) -> bool:
    """Whether it is a bool, an int, a finite float or a string that UTF-8 can write."""
    if isinstance(value, str):
        return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int)


def as_list(values: object) -> list[Any]:
    """The elements of a list or tuple, or the one value itself."""
    return list(values) if isinstance(values, list | tuple) else [values]


def _show(value: object) -> str:
    """The value in a message: its repr, cut where it is long, with the type where the repr alone misleads."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _name(name: object) -> str:
    fits = isinstance(name, str) and name.isidentifier() and unicodedata.normalize("NFKC", name) == name
    if not isinstance(name, str) or not fits or len(name) > MAX_NAME:
        raise SpaceError(
            f"a parameter's name is made of letters, digits and underscores, does not begin with a digit and has at "
            f"most {MAX_NAME} characters; got {_show(name)}"
        )
    return name


def _flag(name: str, flag: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SpaceError(f"{flag} of {_show(name)} must be True or False, got {_show(value)}")
    return value


def _bound(name: object, which: str, value: object) -> float:
    try:
        bound = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        bound = math.nan
    if not math.isfinite(bound):
        raise SpaceError(f"{which} of {_show(name)} must be a finite number, got {_show(value)}")
    return bound


def _int_bound(name: object, which: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "; use Float for real numbers" if isinstance(value, float) and math.isfinite(value) else ""
        raise SpaceError(f"{which} of {_show(name)} must be an integer, got {_show(value)}{hint}")
    if abs(value) > MAX_INT:
        raise SpaceError(f"{which} of {_show(name)} must lie within plus or minus 2**63 - 1, got {_show(value)}")
    return int(value)


def _check_bounds(name: object, low: float, high: float, log: bool) -> None:
    if low > high:
        raise SpaceError(f"low of {_show(name)} must not be above high, got low={low!r}, high={high!r}; swap them")
    if log and low <= 0:
        raise SpaceError(f"low of {_show(name)} must be above 0 on a log scale, got {low!r}; raise it or drop log=True")


def _choices(name: object, choices: object) -> tuple[Value, ...]:
    if isinstance(choices, str | bytes | Mapping | set | frozenset) or not isinstance(choices, Iterable):
        raise SpaceError(f"choices of {_show(name)} must be a list, got {_show(choices)}")
    found = tuple(choices)
    if not found:
        raise SpaceError(f"choices of {_show(name)} must not be empty; give at least one value")
    for choice in found:
        if not is_value(choice):
            raise SpaceError(
                f"each choice of {_show(name)} must be a bool, an int, a finite float or a string; got {_show(choice)} "
                f"({type(choice).__name__})"
            )
    seen: dict[Value, Value] = {}
    for choice in found:
        if choice in seen:
            raise SpaceError(
                f"choices of {_show(name)} must differ, got {seen[choice]!r} and {choice!r}, which are equal; drop one"
            )
        seen[choice] = choice
    return found


def _when(name: str, when: object) -> dict[str, tuple[Value, ...]]:
    if when is None:
        return {}
    if not isinstance(when, Mapping):
        raise SpaceError(f"when of {name!r} must map a parent's name to its value or values, got {_show(when)}")
    conditions: dict[str, tuple[Value, ...]] = {}
    for parent, values in when.items():
        _name(parent)
        allowed = as_list(values)
        if not allowed or not all(map(is_value, allowed)):
            raise SpaceError(f"when of {name!r} must give {parent!r} a value or a list of values, got {_show(values)}")
        if parent == name:
            raise SpaceError(f"when of {name!r} must name another parameter, it names {name!r} itself")
        conditions[parent] = tuple(allowed)
    return conditions


def _affects(name: str, affects: object) -> frozenset[str]:
    items = [affects] if isinstance(affects, str) else list(affects) if isinstance(affects, Iterable) else [affects]
    unknown = [item for item in items if item not in ALL]
    if unknown or not items:
        raise SpaceError(
            f"affects of {name!r} must name at least one of quality, speed and memory, "
            f"got {_show(unknown[0] if unknown else affects)}"
        )
    return frozenset(items)
