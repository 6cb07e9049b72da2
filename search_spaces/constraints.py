"""Constraints between parameters: their types, and on many coordinates at once."""

import ast
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from .conditions import with_ancestors
from .errors import SpaceError
from .expressions import BoolArray, Expression, column
from .parameters import Choice, FloatArray, Parameter, RawArray
from .validation import Value, identity, show

Kinds = frozenset[str]

NUMBER: Final[Kinds] = frozenset({"number"})


def check_types(constraint: Expression, parameters: Mapping[str, Parameter]) -> None:
    """Raise SpaceError if a part of the constraint can never have a result.

    Args:
        parameters: must contain every name of the constraint.
    """
    kinds = {name: _kinds_of(parameters[name]) for name in constraint.names}
    for node in ast.walk(constraint.tree):
        match node:
            case ast.BinOp():
                _need_numbers(constraint, [node.left, node.right], kinds)
            case ast.Call():
                _need_numbers(constraint, node.args, kinds)
            case ast.BoolOp():
                _need_numbers(constraint, node.values, kinds)
            case ast.UnaryOp():
                _need_numbers(constraint, [node.operand], kinds)
            case ast.Compare():
                _need_alike(constraint, node, kinds)
    _need_numbers(constraint, [constraint.tree], kinds)


def _kinds_of(parameter: Parameter) -> Kinds:
    if not isinstance(parameter, Choice):
        return NUMBER
    return frozenset(map(_kind, parameter.choices))


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, tuple) else "number"


def _infer(node: ast.expr, kinds: Mapping[str, Kinds]) -> Kinds:
    match node:
        case ast.Name():
            return kinds[node.id]
        case ast.Constant(value=str() | None):
            return frozenset({_kind(node.value)})
        case ast.Tuple() | ast.List() | ast.Set():
            return frozenset().union(*(_infer(item, kinds) for item in node.elts))
    return NUMBER


def _need_numbers(
    constraint: Expression, nodes: list[ast.expr], kinds: Mapping[str, Kinds]
) -> None:
    for node in nodes:
        if not _infer(node, kinds) & NUMBER:
            part = ast.unparse(node)
            raise SpaceError(
                f"constraint {show(str(constraint))} needs a number at {show(part)}, which is none"
            )


def _need_alike(constraint: Expression, node: ast.Compare, kinds: Mapping[str, Kinds]) -> None:
    for left, right in itertools.pairwise([node.left, *node.comparators]):
        first, second = (_infer(side, kinds) for side in (left, right))
        if first and second and not first & second:
            raise SpaceError(
                f"constraint {show(str(constraint))} compares a {' or '.join(first)} "
                f"with a {' or '.join(second)}: "
                f"{show(ast.unparse(left))} with {show(ast.unparse(right))}"
            )


Activates = Callable[[RawArray], BoolArray]


class Rules:
    """The constraints of a space on many coordinates at once.

    A constraint does not apply if one of its parameters is inactive.

    Attributes:
        columns: indices of the parameters that a constraint depends on, including their ancestors.
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], constraints: Sequence[Expression]
    ) -> None:
        self.constraints = constraints
        self._parameters = parameters
        names = {name for constraint in constraints for name in constraint.names}
        order = list(parameters)
        self.columns = sorted(map(order.index, with_ancestors(parameters, names)))
        self._used = {order[j]: j for j in self.columns}
        self._values = {name: _values(parameters[name]) for name in names}
        self.conditions = {
            name: [(parent, activates(parameters[parent], v)) for parent, v in p.when.items()]
            for name, p in parameters.items()
        }

    def hold(self, units: FloatArray, constraints: Sequence[Expression] | None = None) -> BoolArray:
        """Whether every constraint holds, shape (n,), for coordinates of shape (n, d).

        Args:
            constraints: some of them; None for all.
        """
        wanted = self.constraints if constraints is None else constraints
        found = np.ones(len(units), dtype=np.bool_)
        if not wanted or not len(units):
            return found
        active: dict[str, BoolArray] = {}
        columns: dict[str, RawArray] = {}
        raw: dict[str, RawArray] = {}
        needed = with_ancestors(self._parameters, [n for c in wanted for n in c.names])
        for name, j in self._used.items():
            if name in needed:
                raw[name] = self._parameters[name].raw(units[:, j])
                active[name] = self.active(name, raw, active, len(units))
                if name in self._values:
                    columns[name] = self._values[name](raw[name])
        for constraint in wanted:
            applies = np.logical_and.reduce([active[name] for name in constraint.names])
            found &= constraint.hold(columns, len(units)) | ~applies
        return found

    def active(
        self,
        name: str,
        raw: Mapping[str, RawArray],
        active: Mapping[str, BoolArray],
        count: int,
    ) -> BoolArray:
        """Whether a parameter is active in each of `count` rows, from those of its parents."""
        found = np.ones(count, dtype=np.bool_)
        for parent, test in self.conditions[name]:
            found &= active[parent] & test(raw[parent])
        return found


def activates(parent: Parameter, values: tuple[Value, ...]) -> Activates:
    """A function that tests which raw values of a parent activate a child."""
    if isinstance(parent, Choice):
        known = set(map(identity, values))
        table = np.array([identity(choice) in known for choice in parent.choices])
        return lambda raw: table[raw]
    numbers = np.array(values, dtype=np.float64)
    return lambda raw: np.isin(raw, numbers)


def _values(parameter: Parameter) -> Callable[[RawArray], RawArray]:
    """A function from the raw values of a parameter to a column for an expression."""
    if isinstance(parameter, Choice):
        table = column(parameter.choices)
        return lambda raw: table[raw]
    return lambda raw: raw
