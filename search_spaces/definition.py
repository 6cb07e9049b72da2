"""The definition of a search space: parameters, their conditions, and constraints between them."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .conditions import count_configurations, parents_first, with_own_conditions
from .constraints import Rules, check_types
from .errors import SpaceError
from .expressions import BoolArray, Expression, quoted
from .parameters import FloatArray, Parameter, Params, Value, parameter_from_dict
from .plugins import nearest
from .validation import identity, show

Config = dict[str, Value]

_MISSING = object()  # a parameter without a value, as None may be one


class SpaceDefinition:
    """Legality of configurations, and their map to the unit cube. `Space` adds sampling."""

    def __init__(
        self,
        *parameters: Parameter,
        constraints: str | Expression | Iterable[str | Expression] = (),
    ) -> None:
        self.parameters: dict[str, Parameter] = with_own_conditions(
            parents_first(_by_name(parameters))
        )
        given: Any = [constraints] if isinstance(constraints, str | Expression) else constraints
        if not isinstance(given, Iterable) or isinstance(given, bytes):
            raise SpaceError(
                f"constraints are texts such as 'batch * width <= 4096', got {show(given)}"
            )
        self.constraints = tuple(
            c if isinstance(c, Expression) else Expression(quoted(c, self.parameters))
            for c in given
        )
        for constraint in self.constraints:
            self._check_names(constraint)
        self._names = tuple(self.parameters)
        self.names = frozenset(self._names)
        self._conditional = {
            name: tuple(
                (parent, frozenset(map(identity, values)))
                for parent, values in parameter.when.items()
            )
            for name, parameter in self.parameters.items()
            if parameter.when
        }

    def _check_names(self, constraint: Expression) -> None:
        if not constraint.names:
            raise SpaceError(f"constraint {show(str(constraint))} must name at least one parameter")
        for name in constraint.names:
            if name not in self.parameters:
                hint = nearest(name, list(self.parameters))
                raise SpaceError(
                    f"constraint {show(str(constraint))} names the unknown parameter {name!r}: "
                    f"{hint}"
                )
        check_types(constraint, self.parameters)

    def active(self, params: Params) -> tuple[str, ...]:
        """Names of the active parameters, given the values of their parents; parents first."""
        if not self._conditional:
            return self._names
        off: set[str] = set()
        for name, conditions in self._conditional.items():
            if any(
                parent in off or parent not in params or identity(params[parent]) not in allowed
                for parent, allowed in conditions
            ):
                off.add(name)
        return tuple(name for name in self._names if name not in off)

    def strip(self, params: Params) -> Config:
        """The configuration without unknown and inactive names."""
        return {name: params[name] for name in self.active(params) if name in params}

    def complete(self, params: Params) -> Config:
        """The configuration without inactive names; missing active ones get default or middle."""
        middles = {name: p.middle() for name, p in self.parameters.items() if name not in params}
        return self.strip({**params, **middles})

    def accept(
        self,
        params: Mapping[str, Any],
        *,
        text: bool = False,
        whole: bool = False,
        surplus: bool = False,
        rest: Params | None = None,
    ) -> Config:
        """The configuration of this space that is given, in the space's own form.

        Whatever a configuration comes from, it comes through here. Each value may be of another
        type that means the same, such as 2.0 for 2, a NumPy scalar, or a text. An active parameter
        that is not given has its default, or its middle.

        Args:
            text: whether all values are texts, as in a table or a shell; see `Parameter.accept`.
            whole: whether to refuse a configuration that lacks an active parameter.
            surplus: whether to leave out names that are unknown or inactive; else they are refused.
            rest: values of parameters that are not given, as far as they are legal.

        Raises:
            SpaceError: it is no configuration of this space; the message says the rule, the value
                and what would be right.
        """
        if not isinstance(params, Mapping):
            raise SpaceError(f"a configuration maps names to values, got {show(params)}")
        known: Config = {}
        for name, value in params.items():
            if name in self.parameters:
                known[name] = self.parameters[name].accept(value, text=text)
            elif not surplus:
                hint = nearest(str(name), list(self.parameters))
                raise SpaceError(f"unknown parameter {name!r}: {hint}")
        others = {n: v for n, v in (rest or {}).items() if n in self.parameters}
        legal = {n: v for n, v in others.items() if self.parameters[n].legal(v)}
        found = self.complete({**legal, **known})
        missing = [name for name in found if name not in known]
        if whole and missing:
            raise SpaceError(
                f"{missing[0]} is active and needs a value, the configuration has none"
            )
        extra = [name for name in known if name not in found]
        if extra and not surplus:
            condition = " and ".join(
                f"{parent} is {' or '.join(map(repr, values))}"
                for parent, values in self.parameters[extra[0]].when.items()
            )
            raise SpaceError(
                f"{extra[0]} is active only when {condition}; leave it out, "
                f"got {show(params[extra[0]])}"
            )
        for constraint in self.constraints:
            if not self.holds(constraint, found):
                values = ", ".join(f"{name}={found[name]!r}" for name in constraint.names)
                raise SpaceError(f"constraint {show(str(constraint))} must hold, got {values}")
        return found

    def legal(self, params: Params) -> bool:
        """Whether `accept` takes the whole configuration."""
        try:
            self.accept(params, whole=True)
        except SpaceError:
            return False
        return True

    def satisfied(self, params: Params) -> bool:
        """Whether every constraint holds that has all its parameters in the configuration."""
        return all(self.holds(constraint, params) for constraint in self.constraints)

    @staticmethod
    def holds(constraint: Expression, params: Params) -> bool:
        """Whether a constraint holds, or does not apply because a parameter is missing."""
        return any(name not in params for name in constraint.names) or constraint.evaluate(params)

    def key(self, params: Params) -> Hashable:
        """Identity of a configuration, independent of the order of its names."""
        return tuple(
            None if name not in params else (parameter.key(params[name]),)
            for name, parameter in self.parameters.items()
        )

    def default(self) -> Config | None:
        """The configuration of defaults; None if it is incomplete or not legal."""
        found = {name: p.default for name, p in self.parameters.items() if p.has_default}
        active = self.active(found)
        if any(name not in found for name in active):
            return None
        found = {name: found[name] for name in active}
        return found if self.satisfied(found) else None

    @cached_property
    def size(self) -> int | None:
        """Number of configurations, ignoring constraints; None if infinite or too slow to count."""
        return count_configurations(self.parameters)

    def encode(self, configurations: Sequence[Params]) -> FloatArray:
        """Coordinates in [0, 1], shape (n, d); NaN if a parameter is missing.

        Choice i of k is (i + 0.5) / k, an integer the centre of its cell, a float its relative
        position.
        """
        units = np.full((len(configurations), len(self._names)), np.nan)
        for j, (name, parameter) in enumerate(self.parameters.items()):
            missing = _MISSING if parameter.takes_none else None
            column = [params.get(name, missing) for params in configurations]
            if missing in column:
                rows = [i for i, value in enumerate(column) if value is not missing]
                if rows:
                    units[rows, j] = parameter.to_units([column[i] for i in rows])  # type: ignore[misc]
            elif column:
                units[:, j] = parameter.to_units(column)  # type: ignore[arg-type]
        return units

    def decode(self, units: npt.ArrayLike) -> list[Config]:
        """The nearest configurations to coordinates of shape (n, d), without inactive parameters.

        NaN for an active parameter gives its default or its middle. Constraints are not enforced.

        Raises:
            SpaceError: the array has the wrong shape.
        """
        array = np.asarray(units, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self._names):
            raise SpaceError(
                f"coordinates must have shape (n, {len(self._names)}), got {array.shape}"
            )
        columns = {
            name: self._column(p, array[:, j])
            for j, (name, p) in enumerate(self.parameters.items())
        }
        return self._assembled(columns, len(array))

    @staticmethod
    def _column(parameter: Parameter, units: FloatArray) -> list[Value]:
        absent = np.isnan(units)
        if not absent.any():
            return parameter.from_units(units)
        values = parameter.from_units(np.where(absent, 0.5, units))
        return [
            parameter.middle() if gone else value
            for value, gone in zip(values, absent.tolist(), strict=True)
        ]

    def _assembled(self, columns: Mapping[str, list[Value]], count: int) -> list[Config]:
        """Configurations from a column of values per parameter, without inactive parameters."""
        rows = zip(*columns.values(), strict=True)
        if not self._conditional:
            return [dict(zip(self._names, row, strict=True)) for row in rows]
        masks = zip(*self._masks(columns, count), strict=True)
        return [
            {name: value for name, value, on in zip(self._names, row, mask, strict=True) if on}
            for row, mask in zip(rows, masks, strict=True)
        ]

    def _masks(self, columns: Mapping[str, list[Value]], count: int) -> list[list[bool]]:
        masks: dict[str, list[bool]] = {}
        for name in self._names:
            mask = [True] * count
            for parent, allowed in self._conditional.get(name, ()):
                above = zip(mask, masks[parent], columns[parent], strict=True)
                mask = [m and a and identity(v) in allowed for m, a, v in above]
            masks[name] = mask
        return list(masks.values())

    @cached_property
    def rules(self) -> Rules:
        """The constraints, for many coordinates at once."""
        return Rules(self.parameters, self.constraints)

    def feasible(self, units: FloatArray) -> BoolArray:
        """Whether rows of coordinates decode to configurations that satisfy the constraints.

        Args:
            units: of shape (n, d); NaN marks inactive parameters.

        Returns:
            An array of shape (n,).
        """
        return self.rules.hold(units)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; the inverse is `from_dict`."""
        return {
            "parameters": [parameter.to_dict() for parameter in self.parameters.values()],
            "constraints": [str(constraint) for constraint in self.constraints],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; raises SpaceError if the data do not describe a space."""
        if not isinstance(data, Mapping) or not isinstance(data.get("parameters"), list):
            raise SpaceError(f"a space is an object with a list of parameters, got {show(data)}")
        parameters = [parameter_from_dict(item) for item in data["parameters"]]
        return cls(*parameters, constraints=data.get("constraints", ()))

    def __len__(self) -> int:
        return len(self.parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceDefinition) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @cached_property
    def _text(self) -> str:
        return json.dumps(self.to_dict())

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Self], tuple[dict[str, Any]]]:
        return (type(self).from_dict, (self.to_dict(),))

    def __repr__(self) -> str:
        lines = [f"    {parameter!r}," for parameter in self.parameters.values()]
        if self.constraints:
            lines.append(
                f"    constraints={[str(constraint) for constraint in self.constraints]!r},"
            )
        return "\n".join(["Space(", *lines, ")"])


def _by_name(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for parameter in parameters:
        if not isinstance(parameter, Parameter):
            raise SpaceError(
                f"a space is made of Float, Int and Choice parameters, got {show(parameter)}"
            )
        if parameter.name in found:
            raise SpaceError(
                f"names of parameters must differ, {parameter.name!r} is given twice; rename one"
            )
        found[parameter.name] = parameter
    return found
