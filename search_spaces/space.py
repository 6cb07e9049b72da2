"""The search space: parameters, their conditions, and constraints between them."""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .expressions import BoolArray, Expression, column, quoted
from .parameters import Choice, Float, FloatArray, Parameter, Params, Value, parameter_from_dict
from .plugins import nearest
from .sampling import Sampler, connected_parts, enumerate_legal, neighbours, repaired
from .values import check, identity, plain, show

Config = dict[str, Value]


class Space:
    """A search space. Immutable; can be pickled, compared and written as JSON.

    Args:
        parameters: in any order; a parent may come after its children.
        constraints: texts (or `Expression`s) that a configuration must satisfy. A constraint does
            not apply if one of its parameters is inactive.

    Raises:
        SpaceError: two names are equal, a condition uses an unknown parent or an illegal value,
            conditions form a cycle, or a constraint is malformed or names an unknown parameter.

    Attributes:
        parameters: by name, parents before children, otherwise in the given order; column j of the
            coordinates is parameter j.
        constraints: parsed; `str(constraint)` is the text.
        names: of all parameters, as a set.

    Example:
        >>> space = Space(
        ...     Choice("optimizer", ["sgd", "adam"]),
        ...     Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
        ... )
        >>> space.active({"optimizer": "adam"})
        ('optimizer',)
    """

    def __init__(
        self,
        *parameters: Parameter,
        constraints: str | Expression | Iterable[str | Expression] = (),
    ) -> None:
        self.parameters = _parents_first(parameters)
        given: Any = (
            [constraints]
            if isinstance(constraints, str) or not isinstance(constraints, Iterable)
            else constraints
        )
        self.constraints = tuple(
            c
            if isinstance(c, Expression)
            else Expression(quoted(c, self.parameters) if isinstance(c, str) else c)
            for c in given
        )
        for constraint in self.constraints:
            text = f"constraint {show(str(constraint))}"
            check(constraint.names, f"{text} must name at least one parameter")
            for name in constraint.names:
                if name not in self.parameters:
                    raise SpaceError(
                        f"{text} names the unknown parameter {name!r}: "
                        f"{nearest(name, list(self.parameters))}"
                    )
        self._names = tuple(self.parameters)
        self.names = frozenset(self._names)
        of = self.parameters
        self._conditions = {
            name: [
                (
                    parent,
                    frozenset(map(identity, values)),
                    of[parent].raw(of[parent].to_units(values)),
                )
                for parent, values in parameter.when.items()
            ]
            for name, parameter in self.parameters.items()
            if parameter.when
        }

    def active(self, params: Params) -> tuple[str, ...]:
        """Names of the active parameters, given the values of their parents; parents first."""
        off: set[str] = set()
        for name, conditions in self._conditions.items():
            if any(
                parent in off or parent not in params or identity(params[parent]) not in allowed
                for parent, allowed, _ in conditions
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
        check(
            isinstance(params, Mapping), f"a configuration maps names to values, got {show(params)}"
        )
        for name in [] if surplus else [name for name in params if name not in self.names]:
            raise SpaceError(
                f"unknown parameter {name!r}: {nearest(str(name), list(self.parameters))}"
                + ("" if self.parameters else "; give the sweep a `space` to know it beforehand")
            )
        of = self.parameters
        known = {n: of[n].accept(v, text=text) for n, v in params.items() if n in of}
        legal = {n: v for n, v in (rest or {}).items() if n in of and of[n].legal(v)}
        found = self.complete({**legal, **known})
        for name in found if whole else ():
            check(name in known, f"{name} is active and needs a value, the configuration has none")
        for name in [] if surplus else [name for name in known if name not in found]:
            parents = of[name].when.items()
            when = [f"{parent} is {' or '.join(map(repr, values))}" for parent, values in parents]
            raise SpaceError(
                f"{name} is active only when {' and '.join(when)}; leave it out, "
                f"got {show(params[name])}"
            )
        for constraint in self.constraints:
            if not constraint.evaluate(found):
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
        return all(constraint.evaluate(params) for constraint in self.constraints)

    def key(self, params: Params) -> Hashable:
        """Identity of a configuration, independent of the order of its names."""
        return tuple(
            None if name not in params else (parameter.key(params[name]),)
            for name, parameter in self.parameters.items()
        )

    def default(self) -> Config | None:
        """The configuration of defaults; None if it is incomplete or not legal."""
        found = self.complete({})
        whole = all(self.parameters[name].has_default for name in found)
        return found if whole and self.satisfied(found) else None

    @cached_property
    def size(self) -> int | None:
        """Number of configurations, ignoring constraints.

        None if it is infinite or, with conditions, more than `sampling.MAX_ENUMERATED`.
        """
        sizes = [p.size for p in self.parameters.values() if p.size is not None]
        if len(sizes) < len(self) or not self._conditions:
            return math.prod(sizes) if len(sizes) == len(self) else None
        every = enumerate_legal(Space(*self.parameters.values()))
        return None if every is None else len(every[0])

    def sample(self, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """`count` legal configurations, uniform in the unit cube given conditions and constraints.

        Points that rejection misses are enumerated, or found near a corner and then moved by slice
        sampling; then neighbours in the list may be similar.

        Raises:
            SpaceError: no configuration that satisfies the constraints was found.
        """
        units = rng.random((count, len(self)))
        for sampler in self._samplers:
            units[:, sampler.columns] = sampler.draw(rng, count)
        return self.decode(units)

    @cached_property
    def _samplers(self) -> list[Sampler]:
        return [Sampler(self, part) for part in connected_parts(self)]

    def neighbours(self, params: Params, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """Up to `count` different legal configurations, one or two changes away from a legal one.

        A change swaps a discrete value, moves a number, or, for a parent, draws the parameters that
        it activates. If constraints prevent that, further parameters change until they hold. The
        list is shorter than `count` only if few neighbours were found.
        """
        return neighbours(self, self._samplers, dict(params), rng, count)

    def repair(self, params: Params, rng: np.random.Generator) -> Config:
        """A legal configuration near one that may violate constraints.

        Inactive parameters are removed; missing active ones get their default or middle.

        Raises:
            SpaceError: a value is illegal, or no configuration satisfies the constraints.
        """
        given = {n: p.accept(params[n]) for n, p in self.parameters.items() if n in params}
        found = self.complete(given)
        if self.satisfied(found):
            return found
        return repaired(self, self._samplers, found, rng) or self.sample(rng)[0]

    def encode(self, configurations: Sequence[Params]) -> FloatArray:
        """Coordinates in [0, 1], shape (n, d); NaN if a parameter is missing.

        Choice i of k is (i + 0.5) / k, an integer the centre of its cell, a float its relative
        position.
        """
        units = np.full((len(configurations), len(self._names)), np.nan)
        for j, (name, parameter) in enumerate(self.parameters.items()):
            has = [name in params for params in configurations]
            units[has, j] = parameter.to_units([c[name] for c in configurations if name in c])
        return units

    def decode(self, units: npt.ArrayLike) -> list[Config]:
        """The nearest configurations to coordinates of shape (n, d), without inactive parameters.

        NaN for an active parameter gives its default or its middle. Constraints are not enforced.

        Raises:
            SpaceError: the array has the wrong shape.
        """
        array = np.array(units, dtype=np.float64)
        check(
            array.ndim == 2 and array.shape[1] == len(self._names),
            f"coordinates must have shape (n, {len(self._names)}), got {array.shape}",
        )
        columns = []
        for j, parameter in enumerate(self.parameters.values()):
            absent = np.isnan(array[:, j])
            values = parameter.from_units(array[:, j])
            if absent.any():
                middle = parameter.middle()
                array[absent, j] = parameter.to_unit(middle)
                values = [middle if gone else v for v, gone in zip(values, absent, strict=True)]
            columns.append(values)
        rows = zip(*columns, strict=True)
        masks = np.stack([*self.where_active(array).values()], axis=1).tolist() if columns else []
        return [
            {name: value for name, value, on in zip(self._names, row, mask, strict=True) if on}
            for row, mask in zip(rows, masks, strict=True)
        ]

    def where_active(self, units: FloatArray) -> dict[str, BoolArray]:
        """By name, whether a parameter is active in each row of coordinates."""
        columns = dict(zip(self._names, units.T, strict=True))
        found: dict[str, BoolArray] = {}
        for name in self._names:
            found[name] = np.ones(len(units), dtype=np.bool_)
            for parent, _, allowed in self._conditions.get(name, ()):
                raw = self.parameters[parent].raw(columns[parent])
                found[name] &= found[parent] & (raw[:, None] == allowed).any(axis=1)
        return found

    def feasible(
        self, units: FloatArray, constraints: Sequence[Expression] | None = None
    ) -> BoolArray:
        """Whether rows of coordinates decode to configurations that satisfy the constraints.

        Args:
            units: of shape (n, d); NaN marks inactive parameters.
            constraints: some of the space's; None for all.

        Returns:
            An array of shape (n,).
        """
        wanted = self.constraints if constraints is None else constraints
        found = np.ones(len(units), dtype=np.bool_)
        if not wanted:
            return found
        active = self.where_active(units)
        columns: dict[str, npt.NDArray[Any]] = {}
        for name in {name for constraint in wanted for name in constraint.names}:
            parameter = self.parameters[name]
            raw = parameter.raw(units[:, self._names.index(name)])
            columns[name] = column(parameter.choices)[raw] if isinstance(parameter, Choice) else raw
        for constraint in wanted:
            applies = np.logical_and.reduce([active[name] for name in constraint.names])
            found &= constraint.hold(columns, len(units)) | ~applies
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; the inverse is `from_dict`."""
        return {
            "parameters": [parameter.to_dict() for parameter in self.parameters.values()],
            "constraints": [str(constraint) for constraint in self.constraints],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; raises SpaceError if the data do not describe a space."""
        check(
            isinstance(data, Mapping) and isinstance(data.get("parameters"), list),
            f"a space is an object with a list of parameters, got {show(data)}",
        )
        parameters = [parameter_from_dict(item) for item in data["parameters"]]
        return cls(*parameters, constraints=data.get("constraints", ()))

    def __len__(self) -> int:
        return len(self.parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self._text == other._text

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
            lines.append(f"    constraints={[*map(str, self.constraints)]!r},")
        return "\n".join(["Space(", *lines, ")"])


def read_space(given: Any) -> Space:
    """The space that a user gives.

    Args:
        given: a `Space`, a list of parameters, or a mapping of names to ranges. (0, 10) is a range
            of whole numbers, (0.0, 10.0) one of real numbers, a list, array or `range` a choice,
            and a mapping has the arguments of the parameter.

    Raises:
        SpaceError: it is none of these, or an entry is malformed.
    """
    if isinstance(given, Mapping):
        given = Space(*(_parameter(name, entry) for name, entry in given.items()))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Space):
        given = Space(*given)
    check(
        isinstance(given, Space),
        "a space is a Space or a mapping of names to ranges, such as "
        f"{{'lr': (1e-5, 0.1), 'optimizer': ['sgd', 'adam']}}; got {show(given)}",
    )
    check(given.parameters, "a space needs at least one parameter, got none")
    return cast(Space, given)


def _parameter(name: Any, entry: Any) -> Parameter:
    if isinstance(entry, Parameter):
        check(entry.name == name, f"{show(name)} is a parameter with another name, {entry.name!r}")
        return entry
    if isinstance(entry, list | range | np.ndarray):
        return Choice(name, cast(Sequence[Any], entry))
    if isinstance(entry, tuple) and len(entry) == 2:
        entry = {"low": entry[0], "high": entry[1]}
    check(
        isinstance(entry, Mapping) and entry,
        f"the range of {show(name)} must be (low, high) with two numbers, a list of choices, a "
        "mapping such as {'low': 1e-5, 'high': 0.1, 'log': True}, or a Float, Int or Choice; "
        f"got {show(entry)}",
    )
    whole = {type(plain(entry.get(end))) for end in ("low", "high")} == {int}
    kind = "choice" if "choices" in entry else "int" if whole else "float"
    return parameter_from_dict({"type": kind, **entry, "name": name})


def _parents_first(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Parameters by name, each after its parents; otherwise the order is kept.

    The values of their conditions are in the form of the parents.
    """
    given: dict[str, Parameter] = {}
    for parameter in parameters:
        check(
            isinstance(parameter, Parameter),
            f"a space is made of Float, Int and Choice parameters, got {show(parameter)}",
        )
        check(
            parameter.name not in given,
            f"names of parameters must differ, {parameter.name!r} is given twice; rename one",
        )
        given[parameter.name] = parameter
    placed: dict[str, Parameter] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in placed:
            return
        check(
            name not in path,
            f"conditions must not form a cycle, got {' -> '.join([*path, name])}; "
            "drop one of these conditions",
        )
        for parent in given[name].when:
            if parent not in given:
                raise SpaceError(
                    f"when of {name!r} names the unknown parent {parent!r}: "
                    f"{nearest(parent, [n for n in given if n != name])}"
                )
            place(parent, (*path, name))
        placed[name] = _with_own_condition(given[name], placed)

    for name in given:
        place(name, ())
    return placed


def _with_own_condition(parameter: Parameter, parents: Mapping[str, Parameter]) -> Parameter:
    own = {}
    for name, values in parameter.when.items():
        check(
            not isinstance(parents[name], Float),
            f"when of {parameter.name!r} must name a Choice or an Int, {name!r} is a Float: "
            "a single real value is never drawn",
        )
        try:
            own[name] = [parents[name].accept(value) for value in values]
        except SpaceError as error:
            raise SpaceError(
                f"when of {parameter.name!r} names a value that {name!r} cannot take: {error}"
            ) from None
    if json.dumps(own) == json.dumps(parameter.when):
        return parameter
    return parameter_from_dict({**parameter.to_dict(), "when": own})
