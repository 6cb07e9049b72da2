"""Constraints between parameters as text, such as `batch_size * accumulation <= 512`.

Python's parser reads the text, and a whitelist of node types is compiled to one function of NumPy
columns; nothing is passed to `eval`. Arithmetic is in float64, so whole numbers are exact up to
2**53. Length and depth are limited, so that hostile text is refused quickly.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from .errors import SpaceError
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

    A comparison is false if its arithmetic has no result (division by zero, overflow), or if it
    orders a number and a text; so is its negation.

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
        self.text = _checked_text(text)
        self.tree = _parse(self.text)
        compiler = _Compiler(self.text)
        compiler.compile(self.tree)
        _check_condition(self.tree, self.text)
        self._hold = compiler.condition(self.tree)
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
            return np.broadcast_to(np.asarray(self._hold(columns), dtype=np.bool_), (count,))

    def evaluate(self, params: Mapping[str, Value]) -> bool:
        """Whether the condition holds.

        Raises:
            SpaceError: a parameter of the condition has no value.
        """
        for name in self.names:
            if name not in params:
                raise SpaceError(
                    f"constraint {show(self.text)} needs a value of {name!r}, got none"
                )
        return bool(self.hold({name: column([params[name]]) for name in self.names}, 1)[0])

    def bind(self, values: Mapping[str, Value]) -> Expression:
        """The same condition with some names replaced by values; other names are ignored."""
        if not set(values) & set(self.names):
            return self
        return Expression(ast.unparse(_Bind(values).visit(_parse(self.text))))

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


class _Bind(ast.NodeTransformer):
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


def _checked_text(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise SpaceError(
            f"a constraint is a text such as 'batch_size * accumulation <= 512', got {show(text)}"
        )
    if len(text) > MAX_LENGTH:
        raise SpaceError(
            f"a constraint has at most {MAX_LENGTH} characters, got {len(text)}: {show(text)}"
        )
    return text.strip()


def _parse(text: str) -> ast.expr:
    names: dict[str, str] = {}  # those in backticks, by what stands for them

    def stand_in(found: re.Match[str]) -> str:
        names[f"_quoted_{len(names)}"] = found[1]
        return f"_quoted_{len(names) - 1}"

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_QUOTED.sub(stand_in, text), mode="eval").body
    except SyntaxError as error:
        raise SpaceError(
            f"constraint {show(text)} is not well formed at column {error.offset}: {error.msg}"
        ) from None
    except (ValueError, MemoryError, RecursionError):
        raise SpaceError(
            f"constraint {show(text)} is not well formed or nested too deeply"
        ) from None
    level = [tree]
    depth = 0
    count = 0
    while level:
        depth = depth + 1
        count = count + len(level)
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise SpaceError(
                f"a constraint is nested at most {MAX_DEPTH} deep and has at most {MAX_NODES} "
                f"parts, got more in {show(text)}"
            )
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        ]
    return cast(ast.expr, _Names(names).visit(tree))


class _Names(ast.NodeTransformer):
    """Makes one name of `model.lr`, and puts the names that were in backticks back."""

    def __init__(self, quoted_names: Mapping[str, str]) -> None:
        self._quoted = quoted_names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Name(self._quoted.get(node.id, node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        base = self.visit(node.value)
        if not isinstance(base, ast.Name):
            return node
        return ast.copy_location(ast.Name(f"{base.id}.{node.attr}", ast.Load()), node)


def _check_condition(node: ast.expr, text: str) -> None:
    """Operands of and, or, not, and the whole, must be boolean: `x == 1 or 2` is an error."""
    match node:
        case ast.BoolOp():
            for value in node.values:
                _check_condition(value, text)
        case ast.UnaryOp(op=ast.Not()):
            _check_condition(node.operand, text)
        case ast.Constant(value=True | False):
            return
        case ast.BinOp() | ast.Call() | ast.UnaryOp() | ast.Constant():
            part = ast.get_source_segment(text, node) or text
            raise SpaceError(
                f"constraint {show(text)} needs a condition that is true or false, "
                f"such as a comparison, at {show(part)}"
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
    ast.In: operator.eq,
    ast.NotIn: operator.ne,
}
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
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "min": lambda *items: functools.reduce(np.minimum, items),
    "max": lambda *items: functools.reduce(np.maximum, items),
    "abs": np.abs,
}


def _numbers(values: Any) -> Any:
    """The values as numbers; NaN for what is none."""
    if values.dtype != object:
        return values
    flat = [value if isinstance(value, float) else math.nan for value in values.ravel()]
    return np.array(flat, dtype=np.float64).reshape(values.shape)


def _result(values: Any, *operands: Any) -> Any:
    """The results of arithmetic; NaN if there is none, or if an operand had none."""
    fine = np.isfinite(values)
    for operand in operands:
        fine = fine & ~np.isnan(operand)
    return np.where(fine, values, math.nan)


def _compared(op: type[ast.cmpop], left: Any, right: Any) -> Any:
    """Whether each comparison is true; false if a side has no result or they have no order."""
    compare = _COMPARISONS[op]
    if left.dtype != object and right.dtype != object:
        return compare(left, right) & ~np.isnan(left) & ~np.isnan(right)

    def one(first: Any, second: Any) -> bool:
        try:
            return first == first and second == second and bool(compare(first, second))
        except TypeError:  # a text and a number have no order
            return False

    return np.frompyfunc(one, 2, 1)(left, right).astype(np.bool_)


class _Compiler:
    """Compiles a syntax tree to functions of columns; refuses nodes that are not whitelisted."""

    def __init__(self, text: str) -> None:
        self.text = text

    def compile(self, node: ast.AST) -> Evaluate:
        """The values of a node; raises SpaceError if it is forbidden."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self._refuse(node)
        return cast(Evaluate, method(node))

    def condition(self, node: ast.AST, negated: bool = False) -> Evaluate:
        """Whether a node is true, or false if `negated`; neither without a result."""
        match node:
            case ast.BoolOp():
                parts = [self.condition(value, negated) for value in node.values]
                return _joined(parts, isinstance(node.op, ast.And) is not negated)
            case ast.UnaryOp(op=ast.Not()):
                return self.condition(node.operand, not negated)
            case ast.Compare():
                sides = zip([node.left, *node.comparators], node.ops, node.comparators)  # noqa: B905
                pairs = [self._pair(left, op, right, node, negated) for left, op, right in sides]
                return _joined(pairs, not negated)
        values = self.compile(node)
        op: type[ast.cmpop] = ast.Eq if negated else ast.NotEq
        return lambda columns: _compared(op, _numbers(values(columns)), np.float64(0))

    def _pair(
        self, left: ast.expr, op: ast.cmpop, right: ast.expr, node: ast.Compare, negated: bool
    ) -> Evaluate:
        if type(op) not in _COMPARISONS:
            raise self._refuse(node)
        kind = _NEGATED[type(op)] if negated else type(op)
        first = self.compile(left)
        if not isinstance(op, ast.In | ast.NotIn):
            second = self.compile(right)
            return lambda columns: _compared(kind, first(columns), second(columns))
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or len(node.ops) > 1:
            raise self._refuse(node)
        items = [self.compile(item) for item in right.elts]

        def among(item: Evaluate) -> Evaluate:
            return lambda columns: _compared(kind, first(columns), item(columns))

        pairs = list(map(among, items))
        return _joined(pairs, kind is ast.NotIn)

    def _refuse(self, node: ast.AST) -> SpaceError:
        part = ast.get_source_segment(self.text, node) or type(node).__name__
        return SpaceError(
            f"constraint {show(self.text)} must not contain {show(part)} "
            f"({type(node).__name__}); {GRAMMAR}"
        )

    def _truth(self, node: ast.expr) -> Evaluate:
        truth = self.condition(node)
        return lambda columns: np.asarray(truth(columns), dtype=np.float64)

    _boolop = _compare = _truth

    def _name(self, node: ast.Name) -> Evaluate:
        return operator.itemgetter(node.id)

    def _constant(self, node: ast.Constant) -> Evaluate:
        value = node.value
        if not isinstance(value, bool | int | float | str | None) or (
            isinstance(value, int | float) and not math.isfinite(_as_float(value))
        ):
            raise self._refuse(node)
        constant = column([value])[0:1]
        return lambda columns: constant

    def _binop(self, node: ast.BinOp) -> Evaluate:
        apply = _BINARY.get(type(node.op))
        if apply is None:
            raise self._refuse(node)
        left, right = map(self.compile, (node.left, node.right))

        def result(columns: Columns) -> Any:
            first, second = _numbers(left(columns)), _numbers(right(columns))
            return _result(apply(first, second), first, second)

        return result

    def _unaryop(self, node: ast.UnaryOp) -> Evaluate:
        if isinstance(node.op, ast.Not):
            return self._truth(node)
        if not isinstance(node.op, ast.USub | ast.UAdd):
            raise self._refuse(node)
        sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
        operand = self.compile(node.operand)
        return lambda columns: sign * _numbers(operand(columns))

    def _call(self, node: ast.Call) -> Evaluate:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords or not node.args:
            raise self._refuse(node)
        if (name == "abs") is not (len(node.args) == 1):
            raise self._refuse(node)
        function, arguments = _FUNCTIONS[name], [self.compile(one) for one in node.args]
        return lambda columns: function(*[_numbers(one(columns)) for one in arguments])


def _joined(parts: list[Evaluate], all_needed: bool) -> Evaluate:
    join = operator.and_ if all_needed else operator.or_
    start = np.full(1, all_needed)
    return lambda columns: functools.reduce(join, [part(columns) for part in parts], start)
