"""Constraints between parameters as text, such as `batch_size * accumulation <= 512`.

Python's parser reads the text, and a whitelist of node types is compiled to one function of NumPy
columns, for one configuration or many; nothing is passed to `eval`. Every node gives a column: of
numbers, of truths (1 and 0), or of objects if a value is no number. NaN stands for no result, and
three-valued logic (Kleene 1952) carries it to the top. Arithmetic is in float64, so whole numbers
are exact up to 2**53. Length and depth are limited, so that hostile text is refused quickly.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .values import ROUNDING, Value, check, show

MAX_LENGTH: Final = 2000
MAX_DEPTH: Final = 100
HYPHEN: Final = "\u01c3"  # a letter, stands for the hyphen of a name while Python parses it
# Python's words that may be names here, since no condition has them.
KEYWORDS: Final = {*keyword.kwlist} - {"and", "or", "not", "in", "None", "True", "False"}
STRING: Final = r"""('[^']*'|"[^"]*")"""

Columns = Mapping[str, Any]
Evaluate = Callable[[Columns], Any]
BoolArray = npt.NDArray[np.bool_]

GRAMMAR: Final = (
    "use + - * / // % **, comparisons, and, or, not, in (a, b), min, max, abs, names, "
    "numbers and strings"
)
_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"min": np.minimum, "max": np.maximum}


def quoted(text: str, names: Iterable[str]) -> str:
    """The text with backticks around names with a hyphen, or that are words of Python.

    Example:
        >>> quoted("batch-size >= 8", ["batch-size"])
        '`batch-size` >= 8'
    """
    special = [name for name in names if "-" in name or KEYWORDS & {*name.split(".")}]
    any_of = "|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)"
    return re.sub(
        rf"{STRING}|(`[^`]*`)|(?<![\w.-])(?:{any_of})(?![\w.-])",
        lambda found: found[1] or found[2] or f"`{found[0]}`",
        text,
    )


def column(values: Sequence[Value]) -> npt.NDArray[Any]:
    """A column for `Expression.hold`: of numbers, or of objects if one value is none."""
    found = np.empty(len(values), dtype=object)
    found[:] = [
        (float(v) if abs(v) <= sys.float_info.max else math.nan)
        if isinstance(v, int | float)
        else v
        for v in values
    ]
    return found.astype(np.float64) if all(isinstance(v, float) for v in found) else found


@dataclass(unsafe_hash=True)
class Expression:
    """A condition on the values of parameters.

    A comparison has no result if its arithmetic has none (division by zero, overflow), or if it
    orders a number and a text. The condition does not hold then, and neither does its negation.

    Args:
        text: such as `width % num_heads == 0 and dropout < 0.5`. A name with a hyphen, which would
            be a minus, is in backticks.

    Attributes:
        names: the parameters in the text, in order of appearance.
        tree: the syntax tree; it holds whitelisted nodes only.

    Raises:
        SpaceError: the text is not a condition; the message names the offending part.
    """

    text: str

    def __post_init__(self) -> None:
        check(
            isinstance(self.text, str) and self.text.strip() and len(self.text) <= MAX_LENGTH,
            "a constraint is a text such as 'batch_size * accumulation <= 512', of at most "
            f"{MAX_LENGTH} characters, got {show(self.text)}",
        )
        self.text = self.text.strip()
        self.tree = _parse(self.text)
        self._named: dict[str, None] = {}
        self._values = self._truth(self.tree)
        self.names: tuple[str, ...] = tuple(self._named)

    def hold(self, columns: Columns, count: int) -> BoolArray:
        """Whether the condition holds in each row, shape (count,).

        Args:
            columns: by name what `column` returns, shape (count,).
        """
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._values(columns) == 1, (count,))

    def evaluate(self, params: Mapping[str, Value]) -> bool:
        """Whether the condition holds, or does not apply because a parameter has no value."""
        if any(name not in params for name in self.names):
            return True
        return bool(self.hold({name: column([params[name]]) for name in self.names}, 1)[0])

    def bind(self, values: Mapping[str, Value]) -> Expression:
        """The same condition with some names replaced by values; other names are ignored."""
        if not set(values) & set(self.names):
            return self
        text = ast.unparse(_Bind(values).visit(_parse(self.text)))
        return Expression(
            re.sub(rf"[\w.]*{HYPHEN}[\w.]*", lambda name: f"`{_decoded(name[0])}`", text)
        )

    def _truth(self, node: ast.expr) -> Evaluate:
        """The truths of a condition, which is one by its form, or a name or a constant."""
        match node:
            case ast.BoolOp(op, parts):
                return _joined([self._truth(part) for part in parts], isinstance(op, ast.And))
            case ast.UnaryOp(ast.Not(), operand):
                truth = self._truth(operand)
                return lambda columns: 1.0 - truth(columns)
            case ast.Compare(left, [ast.In()], [ast.Tuple(some) | ast.List(some) | ast.Set(some)]):
                pairs = [self._pair(left, ast.Eq(), item) for item in some]
                return _joined(pairs, all_needed=False)
            case ast.Compare(left, [ast.NotIn()], others):
                among = self._truth(ast.Compare(left, [ast.In()], others))
                return lambda columns: 1.0 - among(columns)
            case ast.Compare(left, ops, others) if {*map(type, ops)} <= _COMPARISONS.keys():
                sides = zip([left, *others], ops, others)  # noqa: B905
                return _joined([self._pair(*side) for side in sides], all_needed=True)
            case ast.Name() | ast.Attribute() | ast.Constant(value=True | False):
                values = self._compiled(node)
                return lambda columns: _compared(operator.ne, _numbers(values(columns)), 0.0)
        raise self._refused("needs a condition that is true or false at", node)

    def _compiled(self, node: ast.expr) -> Evaluate:
        """The values of a node as a function of the columns; refuses what is not whitelisted."""
        match node:
            case ast.Name() | ast.Attribute() if _name(node):
                self._named[_name(node)] = None
                return operator.itemgetter(_name(node))
            case ast.Constant(bool() | int() | float() | str() | None as value):
                constant = column([value])
                if constant.dtype == object or np.isfinite(constant[0]):
                    return lambda columns: constant
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(ast.Not()):
                return self._truth(node)
            case ast.UnaryOp(ast.USub() | ast.UAdd() as op, operand):
                sign, values = -1.0 if isinstance(op, ast.USub) else 1.0, self._compiled(operand)
                return lambda columns: sign * _numbers(values(columns))
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                return _folded(_BINARY[type(op)], [self._compiled(left), self._compiled(right)])
            case ast.Call(ast.Name("abs"), [operand], []):
                values = self._compiled(operand)
                return lambda columns: np.abs(_numbers(values(columns)))
            case ast.Call(ast.Name(name), [_, _, *_] as parts, []) if name in _FUNCTIONS:
                return _folded(_FUNCTIONS[name], [self._compiled(part) for part in parts])
        raise self._refused("must not contain", node)

    def _refused(self, said: str, node: ast.expr) -> SpaceError:
        part = show(_decoded(ast.unparse(node)))
        return SpaceError(f"constraint {show(self.text)} {said} {part}; {GRAMMAR}")

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Evaluate:
        compare, first, second = _COMPARISONS[type(op)], self._compiled(left), self._compiled(right)
        return lambda columns: _compared(compare, first(columns), second(columns))

    def __str__(self) -> str:
        return self.text


def _numbers(values: Any) -> Any:
    """The values as numbers; NaN for what is none."""
    if values.dtype != object:
        return values
    return np.array([v if isinstance(v, float) else math.nan for v in values], dtype=np.float64)


def _folded(apply: Callable[[Any, Any], Any], parts: list[Evaluate]) -> Evaluate:
    """Arithmetic on all parts; NaN if there is no finite result, or if an operand had none."""

    def one(first: Any, second: Any) -> Any:
        found = apply(first, second)
        return np.where(np.isfinite(found) & ~np.isnan(first + second), found, math.nan)

    return lambda columns: functools.reduce(one, [_numbers(part(columns)) for part in parts])


def _compared(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """The truth of each comparison; NaN if a side has no result or they have no order.

    Real numbers are equal up to their rounding, so that 0.1 + 0.2 <= 0.3; whole ones differ by 1.
    """
    if np.object_ not in (left.dtype, getattr(right, "dtype", None)):
        slack = np.minimum(1.0, ROUNDING * np.maximum(np.abs(left), np.abs(right)))
        return np.where(
            np.isnan(left + right),
            math.nan,
            compare(np.where(np.abs(left - right) < slack, right, left), right),
        )

    def one(first: Any, second: Any) -> float:
        try:
            return (
                float(compare(first, second)) if first == first and second == second else math.nan
            )
        except TypeError:  # a text and a number have no order
            return math.nan

    return np.frompyfunc(one, 2, 1)(left, right).astype(np.float64)


def _joined(parts: list[Evaluate], all_needed: bool) -> Evaluate:
    """The truth of all parts, or of any of them."""
    decisive = 0.0 if all_needed else 1.0

    def one(first: Any, second: Any) -> Any:
        return np.where((first == decisive) | (second == decisive), decisive, first * second)

    if not parts:
        return lambda columns: np.full(1, 1.0 - decisive)
    return lambda columns: functools.reduce(one, [part(columns) for part in parts])


class _Bind(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.expr) -> ast.expr:
        if _name(node) not in self.values:
            return node
        value = repr(self.values[_name(node)])
        return ast.parse(value, mode="eval").body  # -3 keeps its parentheses under `**`

    visit_Attribute = visit_Name  # noqa: N815


def _name(node: ast.expr) -> str:
    """The name of a parameter, such as model.lr or batch-size; "" if the node is none."""
    text = ast.unparse(node)
    return _decoded(text) if re.fullmatch(r"[\w.]+", text) else ""


def _decoded(text: str) -> str:
    """The names as they were before `_parse`, also within a longer text."""
    return re.sub(rf"{HYPHEN}(?!\w)", "", text).replace(HYPHEN, "-")


def _parse(text: str) -> ast.expr:
    named = re.sub(  # a letter for each hyphen of a name, and behind each part
        rf"{STRING}|`([^`]*)`",
        lambda found: found[1] or re.sub(r"-|(?=\.|$)", HYPHEN, found[2]),
        text,
    )
    try:
        tree = ast.parse(named, mode="eval").body
        deep = _depth(tree) > MAX_DEPTH
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SpaceError(f"constraint {show(text)} is not well formed: {error}") from None
    check(not deep, f"a constraint is nested at most {MAX_DEPTH} deep, got more in {show(text)}")
    return tree


def _depth(node: ast.AST) -> int:
    below = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return 1 + max(map(_depth, below), default=0)
