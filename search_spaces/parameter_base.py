"""What every parameter is: a name, a condition, an effect, and a map to the unit interval."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .validation import ALL, Value, When, checked_affects, checked_name, checked_when, plain

FloatArray = npt.NDArray[np.float64]
RawArray = npt.NDArray[Any]


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
        self,
        name: str,
        *,
        default: Value | None,
        when: When | None,
        affects: str | Iterable[str] = ALL,
    ) -> None:
        self.name = checked_name(name)
        self.when = checked_when(self.name, when)
        self.affects = checked_affects(self.name, affects)
        self.default = None if default is None else self._canonical_default(plain(default))

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
    def raw(self, units: FloatArray) -> RawArray:
        """As `from_units`, as an array: numbers as float64, and for a `Choice` its index."""

    @abstractmethod
    def centres(self, raw: RawArray) -> FloatArray:
        """The inverse of `raw`: coordinates, in the centre of the cell where discrete."""

    @abstractmethod
    def from_units(self, units: FloatArray) -> list[Any]:
        """The nearest values of n coordinates, shape (n,); coordinates outside of [0, 1] are clipped."""

    @abstractmethod
    def values(self) -> list[Any]:
        """Every value in order; raises SpaceError where there are infinitely many."""

    def perturb(self, units: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Other coordinates near these, shape (n,): another value where discrete, reflected at the ends."""
        moved = np.abs(units + rng.normal(0.0, 10.0 ** rng.uniform(-2.0, -0.5, size=len(units))))
        moved = np.clip(np.where(moved > 1.0, 2.0 - moved, moved), 0.0, 1.0)
        if self.size in (None, 1):
            return moved
        before, after = self.raw(units), self.raw(moved)
        low, high = self.raw(np.array([0.0, 1.0]))
        step = np.where(rng.random(len(units)) < 0.5, -1, 1)
        step = np.where(before == low, 1, np.where(before == high, -1, step))
        return self.centres(np.where(after == before, before + step, after))

    def weights(self, values: Sequence[Value]) -> FloatArray:
        """Widths of the cells of discrete values in the unit interval, shape (n,)."""
        return np.full(len(values), 1.0 / (self.size or 1))

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
        return isinstance(other, Parameter) and self._text() == other._text()

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        return json.dumps(self.to_dict())  # JSON tells True from 1, which == does not
