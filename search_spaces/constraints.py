"""Constraints between parameters: their types, and how far coordinates are from them."""

import ast
import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from .conditions import with_ancestors
from .errors import SpaceError
from .expressions import COMPARISONS, Expression
from .parameters import Choice, FloatArray, Parameter, RawArray
from .validation import show

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


Columns = Mapping[str, RawArray]
Compute = Callable[[Columns], Any]

NO_RESULT: Final = 1e3
MIN_DISTANCE: Final = 1e-12

_NEGATED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "min": lambda *items: functools.reduce(np.minimum, items),
    "max": lambda *items: functools.reduce(np.maximum, items),
    "abs": np.abs,
}


class ConstraintDistance:
    """Distance from a constraint: 0 if it holds, else positive and smaller the nearer it is.

    A comparison of numbers that differ by d counts log(1 + d), so that constraints of different
    scales can be added. `and` adds, `or` takes the minimum, `not` is pushed inwards; anything else
    counts 1. Computed in float64: beyond 2**53, or if arithmetic has no result,
    `Expression.evaluate` decides.
    """

    def __init__(self, expression: Expression, parameters: Mapping[str, Parameter]) -> None:
        self.names = expression.names
        self._parameters = parameters
        self._distance = self._condition(expression.tree, False)

    def __call__(self, columns: Columns, count: int) -> FloatArray:
        """Distances, shape (count,).

        Args:
            columns: maps each name of the constraint to its `Parameter.raw`, shape (count,).
        """
        with np.errstate(all="ignore"):
            distance = np.broadcast_to(
                np.asarray(self._distance(columns), dtype=np.float64), (count,)
            )
        return cast(FloatArray, np.nan_to_num(distance, nan=NO_RESULT, posinf=NO_RESULT))

    def _condition(self, node: ast.expr, negated: bool) -> Compute:
        match node:
            case ast.BoolOp():
                parts = [self._condition(value, negated) for value in node.values]
                return _joined(parts, isinstance(node.op, ast.And) is not negated)
            case ast.UnaryOp(op=ast.Not()):
                return self._condition(node.operand, not negated)
            case ast.Compare():
                sides = itertools.pairwise([node.left, *node.comparators])
                parts = [
                    self._pair(left, _NEGATED[type(op)] if negated else type(op), right)
                    for (left, right), op in zip(sides, node.ops, strict=True)
                ]
                return _joined(parts, not negated)
        value = self._number(node)
        return lambda columns: np.asarray((value(columns) != 0) == negated, dtype=np.float64)

    def _pair(self, left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> Compute:
        if self._textual(left) or self._textual(right):
            return self._by_object(left, op, right)
        first = self._number(left)
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            items = [self._number(item) for item in right.elts]
            if issubclass(op, ast.NotIn):
                return _joined([_compared(ast.NotEq, first, item) for item in items], True)
            return _joined([_compared(ast.Eq, first, item) for item in items], False)
        return _compared(op, first, self._number(right))

    def _textual(self, node: ast.expr) -> bool:
        """Whether the result can be no number: a string, None or a list."""
        match node:
            case ast.Name():
                parameter = self._parameters[node.id]
                return isinstance(parameter, Choice) and not all(map(_is_number, parameter.choices))
            case ast.Tuple() | ast.List() | ast.Set():
                return any(map(self._textual, node.elts))
        return isinstance(node, ast.Constant) and not _is_number(node.value)

    def _by_object(self, left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> Compute:
        """1 or 0: from a table if a choice is compared with constants, else value by value."""

        def wrong(a: Any, b: Any) -> float:
            try:
                return 0.0 if COMPARISONS[op](a, b) else 1.0
            except TypeError:
                return 1.0

        parameter = self._parameters.get(left.id) if isinstance(left, ast.Name) else None
        if isinstance(left, ast.Name) and isinstance(parameter, Choice) and _is_constant(right):
            constant = ast.literal_eval(right)
            name = left.id
            table = np.array([wrong(choice, constant) for choice in parameter.choices])
            return lambda columns: table[columns[name]]
        first = self._object(left)
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            items = [self._object(item) for item in right.elts]
            same = np.frompyfunc(lambda a, *b: wrong(a, b), 1 + len(items), 1)
            return lambda columns: same(first(columns), *[item(columns) for item in items])
        second = self._object(right)
        apply = np.frompyfunc(wrong, 2, 1)
        return lambda columns: apply(first(columns), second(columns))

    def _object(self, node: ast.expr) -> Compute:
        if isinstance(node, ast.Constant):
            value = node.value
            return lambda columns: value
        parameter = self._parameters.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Name) and isinstance(parameter, Choice):
            table = np.fromiter(parameter.choices, dtype=object)
            name = node.id
            return lambda columns: table[columns[name]]
        return self._number(node)

    def _number(self, node: ast.expr) -> Compute:
        match node:
            case ast.Name():
                return self._name(node.id)
            case ast.Constant():
                value = float(node.value) if _is_number(node.value) else math.nan  # type: ignore[arg-type]
                return lambda columns: value
            case ast.BinOp():
                apply = _BINARY[type(node.op)]
                left, right = map(self._number, (node.left, node.right))
                return lambda columns: apply(left(columns), right(columns))
            case ast.UnaryOp() if not isinstance(node.op, ast.Not):
                sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
                operand = self._number(node.operand)
                return lambda columns: sign * operand(columns)
            case ast.Call(func=ast.Name(id=name)):
                function = _FUNCTIONS[name]
                arguments = [self._number(argument) for argument in node.args]
                return lambda columns: function(*[argument(columns) for argument in arguments])
        truth = self._condition(node, False)
        return lambda columns: np.asarray(truth(columns) == 0, dtype=np.float64)

    def _name(self, name: str) -> Compute:
        parameter = self._parameters[name]
        if not isinstance(parameter, Choice):
            return lambda columns: columns[name]
        table = np.array(
            [float(choice) if _is_number(choice) else math.nan for choice in parameter.choices]  # type: ignore[arg-type]
        )
        return lambda columns: table[columns[name]]


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(map(_is_constant, node.elts))
    return isinstance(node, ast.Constant)


def _joined(parts: list[Compute], all_needed: bool) -> Compute:
    if len(parts) == 1:
        return parts[0]
    join = operator.add if all_needed else np.fmin
    return lambda columns: functools.reduce(join, [part(columns) for part in parts])


def _compared(op: type[ast.cmpop], first: Compute, second: Compute) -> Compute:
    def distance(columns: Columns) -> Any:
        gap: Any = np.subtract(first(columns), second(columns))
        if issubclass(op, ast.NotEq):
            wrong: Any = np.where(gap == 0, 1.0, 0.0)
        elif issubclass(op, ast.Eq):
            wrong = np.log1p(np.abs(gap))
        else:
            beyond = gap if issubclass(op, ast.Lt | ast.LtE) else -gap
            wrong = np.log1p(np.maximum(beyond, 0.0))
            # A tiny excess must not round to 0.
            missed = beyond >= 0 if issubclass(op, ast.Lt | ast.Gt) else beyond > 0
            wrong = np.where(missed, np.maximum(wrong, MIN_DISTANCE), wrong)
        return np.where(np.isfinite(gap), wrong, NO_RESULT)

    return distance


BoolArray = npt.NDArray[np.bool_]
Activates = Callable[[RawArray], BoolArray]


class ConstraintEvaluator:
    """Distances of coordinates from the constraints of a space.

    Attributes:
        columns: indices of the parameters that a constraint depends on, including their ancestors.
        depends: whether a constraint depends on a column, shape (number of constraints, d).
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], constraints: Sequence[Expression]
    ) -> None:
        self.parameters = list(parameters.values())
        order = {name: j for j, name in enumerate(parameters)}
        self.constraints = [ConstraintDistance(c, parameters) for c in constraints]
        self.depends = np.zeros((len(self.constraints), len(order)), dtype=np.bool_)
        for i, constraint in enumerate(self.constraints):
            for name in with_ancestors(parameters, constraint.names):
                self.depends[i, order[name]] = True
        self.columns: list[int] = np.flatnonzero(self.depends.any(axis=0)).tolist()
        self._conditions = {
            self.parameters[j].name: [
                (parent, _activates(parameters[parent], values))
                for parent, values in self.parameters[j].when.items()
            ]
            for j in self.columns
        }

    def raw(self, units: FloatArray) -> dict[str, RawArray]:
        """`Parameter.raw` of each column in `columns`, for coordinates of shape (n, d)."""
        return {self.parameters[j].name: self.parameters[j].raw(units[:, j]) for j in self.columns}

    def distances(self, raw: dict[str, RawArray]) -> FloatArray:
        """Distance from each constraint, shape (n, number of constraints).

        It is 0 if the constraint holds, or if one of its parameters is inactive.
        """
        count = len(next(iter(raw.values())))
        active: dict[str, BoolArray | None] = {}
        for name, conditions in self._conditions.items():
            active[name] = _active(conditions, raw, active)
        found = np.zeros((count, len(self.constraints)))
        for i, constraint in enumerate(self.constraints):
            found[:, i] = constraint(raw, count)
            for name in constraint.names:
                mask = active[name]
                if mask is not None:
                    found[~mask, i] = 0.0
        return found

    def satisfied(self, units: FloatArray) -> BoolArray:
        """Whether every constraint holds, shape (n,), for coordinates of shape (n, d)."""
        return cast(BoolArray, (self.distances(self.raw(units)) == 0).all(axis=1))


def _activates(parent: Parameter, values: tuple[object, ...]) -> Activates:
    """A function that tests which raw values of a parent activate a child."""
    if isinstance(parent, Choice):
        table = np.array([choice in values for choice in parent.choices])
        return lambda raw: table[raw]
    numbers = np.array(values, dtype=np.float64)
    return lambda raw: np.isin(raw, numbers)


def _active(
    conditions: list[tuple[str, Activates]],
    raw: dict[str, RawArray],
    active: dict[str, BoolArray | None],
) -> BoolArray | None:
    """Mask of rows in which a parameter is active; None if it is active in all."""
    masks = [activates(raw[parent]) for parent, activates in conditions]
    masks += [above for parent, _ in conditions if (above := active[parent]) is not None]
    return np.logical_and.reduce(masks) if masks else None
