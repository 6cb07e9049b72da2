"""Type check of constraints: a mix of numbers and strings is found when the space is built."""

import ast
import itertools
from collections.abc import Mapping
from typing import Final

from .errors import SpaceError
from .expressions import Expression
from .parameters import Choice, Parameter
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
