"""The kinds of parameters: `Float`, `Int` and `Choice`, each with its map to the unit interval."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .number_parameters import Float, Int
from .parameter_base import FloatArray, Parameter, RawArray, clipped
from .validation import (
    ALL,
    Params,
    Value,
    When,
    checked_choices,
    checked_flag,
    is_value,
    plain,
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
        self._index = {choice: i for i, choice in enumerate(self.choices)}
        self.takes_none = None in self._index
        given = None if isinstance(default, _Unset) else default
        none = self.takes_none and default is None
        super().__init__(name, default=given, when=when, affects=affects, has_default=none)

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.choices)

    def index(self, value: Value) -> int:
        """Position of the value in the list; raises SpaceError if it is not a choice."""
        key = plain(value)
        found = (
            self._index.get(key) if isinstance(key, _KINDS_OF_VALUES) and is_value(key) else None
        )
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
        return np.minimum((clipped(units) * num_choices).astype(np.int64), num_choices - 1)

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
