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
import itertools
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
from .parameters import Choice, Parameter
from .validation import Value, show

MAX_LENGTH: Final = 4000
MAX_NODES: Final = 1000
MAX_DEPTH: Final = 100
_QUOTED: Final = re.compile(r"`([^`]*)`")

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
_NUMBER: Final = frozenset({"number"})


def quoted(text: str, names: Iterable[str]) -> str:
    """The text with backticks around those of these names that hold a hyphen.

    Example:
        >>> quoted("batch-size >= 8", ["batch-size"])
        '`batch-size` >= 8'
    """
    hyphened = sorted((name for name in names if "-" in name), key=len, reverse=True)
    if not hyphened or not isinstance(text, str):
        return text
    any_of = "|".join(map(re.escape, hyphened))
    return re.sub(rf"(?<![\w.`'\"-])(?:{any_of})(?![\w.`'\"-])", r"`\g<0>`", text)


def column(values: Sequence[Value]) -> npt.NDArray[Any]:
    """A column for `Expression.hold`: of numbers, or of objects if one value is none."""
    if all(isinstance(value, int | float) for value in values):
        return np.array([_as_float(value) for value in values], dtype=np.float64)
    found = np.empty(len(values), dtype=object)
    found[:] = [_as_float(v) if isinstance(v, int | float) else v for v in values]
    return found


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


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

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_LENGTH:
            raise SpaceError(
                "a constraint is a text such as 'batch_size * accumulation <= 512', of at most "
                f"{MAX_LENGTH} characters, got {show(text)}"
            )
        self.text = text.strip()
        self.tree = _parse(self.text)
        self._values = self._truth(self.tree)
        called = {id(n.func) for n in ast.walk(self.tree) if isinstance(n, ast.Call)}
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in called]
        found.sort(key=lambda n: (n.lineno, n.col_offset))
        self.names: tuple[str, ...] = tuple(dict.fromkeys(n.id for n in found))

    def hold(self, columns: Columns, count: int) -> BoolArray:
        """Whether the condition holds in each row, shape (count,).

        Args:
            columns: by name what `column` returns, shape (count,).
        """
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._values(columns) == 1, (count,))

    def evaluate(self, params: Mapping[str, Value]) -> bool:
        """Whether the condition holds.

        Raises:
            SpaceError: a parameter of the condition has no value.
        """
        missing = [name for name in self.names if name not in params]
        if missing:
            raise SpaceError(
                f"constraint {show(self.text)} needs a value of {missing[0]!r}, got none"
            )
        return bool(self.hold({name: column([params[name]]) for name in self.names}, 1)[0])

    def bind(self, values: Mapping[str, Value]) -> Expression:
        """The same condition with some names replaced by values; other names are ignored."""
        if not set(values) & set(self.names):
            return self
        return Expression(ast.unparse(_Bind(values).visit(_parse(self.text))))

    def check_types(self, parameters: Mapping[str, Parameter]) -> None:
        """Raise SpaceError if a part of the condition can never have a result.

        Args:
            parameters: must contain every name of the condition.
        """
        kinds = functools.partial(_kinds, parameters)
        numbers = [self.tree]
        for node in ast.walk(self.tree):
            match node:
                case ast.BinOp(left, _, right):
                    numbers += [left, right]
                case ast.Call(_, parts) | ast.BoolOp(_, parts):
                    numbers += parts
                case ast.UnaryOp(_, operand):
                    numbers.append(operand)
                case ast.Compare(left, _, others):
                    for one, other in itertools.pairwise([left, *others]):
                        first, second = kinds(one), kinds(other)
                        if first and second and not first & second:
                            raise self._error(
                                f"compares a {' or '.join(first)} with a {' or '.join(second)}: "
                                f"{show(ast.unparse(one))} with {show(ast.unparse(other))}"
                            )
        for node in numbers:
            if not kinds(node) & _NUMBER:
                raise self._error(f"needs a number at {show(ast.unparse(node))}, which is none")

    def _error(self, said: str) -> SpaceError:
        return SpaceError(f"constraint {show(self.text)} {said}")

    def _refuse(self, node: ast.AST) -> SpaceError:
        part = ast.get_source_segment(self.text, node) or type(node).__name__
        return self._error(f"must not contain {show(part)} ({type(node).__name__}); {GRAMMAR}")

    def _truth(self, node: ast.expr) -> Evaluate:
        """The truths of a condition, which is one by its form, or a name or a constant."""
        values = self._compiled(node)
        match node:
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return values
            case ast.Name() | ast.Constant(value=True | False):
                return lambda columns: _compared(operator.ne, _numbers(values(columns)), 0.0)
        part = ast.get_source_segment(self.text, node) or self.text
        raise self._error(
            f"needs a condition that is true or false, such as a comparison, at {show(part)}"
        )

    def _compiled(self, node: ast.expr) -> Evaluate:
        """The values of a node as a function of the columns; refuses what is not whitelisted."""
        match node:
            case ast.Name(name):
                return operator.itemgetter(name)
            case ast.Constant(bool() | int() | float() | str() | None as value):
                constant = column([value])
                if constant.dtype == object or np.isfinite(constant[0]):
                    return lambda columns: constant
            case ast.BoolOp(op, parts):
                return _joined([self._truth(part) for part in parts], isinstance(op, ast.And))
            case ast.UnaryOp(ast.Not(), operand):
                truth = self._truth(operand)
                return lambda columns: 1.0 - truth(columns)
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
            case ast.Compare():
                return self._comparison(node)
        raise self._refuse(node)

    def _comparison(self, node: ast.Compare) -> Evaluate:
        sides = list(zip([node.left, *node.comparators], node.ops, node.comparators))  # noqa: B905
        op, right = node.ops[0], node.comparators[0]
        among = isinstance(op, ast.In | ast.NotIn) and len(sides) == 1
        if among and isinstance(right, ast.Tuple | ast.List | ast.Set):
            pairs = [self._pair(node.left, ast.Eq(), item) for item in right.elts]
            truth = _joined(pairs, all_needed=False)
            return truth if isinstance(op, ast.In) else lambda columns: 1.0 - truth(columns)
        if not {*map(type, node.ops)} <= _COMPARISONS.keys():
            raise self._refuse(node)
        return _joined([self._pair(*side) for side in sides], all_needed=True)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Evaluate:
        compare, first, second = _COMPARISONS[type(op)], self._compiled(left), self._compiled(right)
        return lambda columns: _compared(compare, first(columns), second(columns))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return (type(self), (self.text,))


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
    """The truth of each comparison; NaN if a side has no result or they have no order."""
    if np.object_ not in (left.dtype, getattr(right, "dtype", None)):
        return np.where(np.isnan(left + right), math.nan, compare(left, right))

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


def _kinds(parameters: Mapping[str, Parameter], node: ast.expr) -> frozenset[str]:
    """What the values of a node can be: "number", "string", "list", "None"."""
    match node:
        case ast.Name(name):
            parameter = parameters[name]
            choices = parameter.choices if isinstance(parameter, Choice) else ()
            return frozenset(map(_kind, choices)) or _NUMBER
        case ast.Constant(value):
            return frozenset({_kind(value)})
        case ast.Tuple(items) | ast.List(items) | ast.Set(items):
            return frozenset().union(*(_kinds(parameters, item) for item in items))
    return _NUMBER


def _kind(value: object) -> str:
    kinds = {"NoneType": "None", "str": "string", "tuple": "list"}
    return kinds.get(type(value).__name__, "number")


class _Bind(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.values:
            return ast.Name(f"`{node.id}`", node.ctx) if "-" in node.id else node
        value = self.values[node.id]
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            return ast.UnaryOp(ast.USub(), ast.Constant(-value))  # keeps its parentheses under `**`
        return ast.Constant(value)  # type: ignore[arg-type]


class _Names(ast.NodeTransformer):
    """Makes one name of `model.lr`, and puts the names that were in backticks back."""

    def __init__(self, quoted_names: list[str]) -> None:
        self._quoted = {f"_quoted_{i}": name for i, name in enumerate(quoted_names)}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Name(self._quoted.get(node.id, node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        base = self.visit(node.value)
        if not isinstance(base, ast.Name):
            return node
        return ast.copy_location(ast.Name(f"{base.id}.{node.attr}", ast.Load()), node)


def _parse(text: str) -> ast.expr:
    names: list[str] = _QUOTED.findall(text)
    number = itertools.count()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = _QUOTED.sub(lambda _: f"_quoted_{next(number)}", text)
            tree = ast.parse(plain, mode="eval").body
        deep = _depth(tree) > MAX_DEPTH
    except SyntaxError as error:
        raise SpaceError(
            f"constraint {show(text)} is not well formed at column {error.offset}: {error.msg}"
        ) from None
    except (ValueError, MemoryError, RecursionError):
        raise SpaceError(
            f"constraint {show(text)} is not well formed or nested too deeply"
        ) from None
    if deep or sum(isinstance(node, ast.expr) for node in ast.walk(tree)) > MAX_NODES:
        raise SpaceError(
            f"a constraint is nested at most {MAX_DEPTH} deep and has at most {MAX_NODES} "
            f"parts, got more in {show(text)}"
        )
    return cast(ast.expr, _Names(names).visit(tree))


def _depth(node: ast.AST) -> int:
    below = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return 1 + max(map(_depth, below), default=0)
