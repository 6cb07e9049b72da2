"""Constraints between parameters as text, such as `batch_size * accumulation <= 512`.

Python's parser reads the text, and a whitelist of node types is compiled to closures; nothing is
passed to `eval`. Length, depth and the size of powers are limited, so that hostile text is refused
quickly.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from .errors import SpaceError
from .validation import Value, show

MAX_LENGTH: Final = 4000
MAX_NODES: Final = 1000
MAX_DEPTH: Final = 100
MAX_BITS: Final = 1024
_QUOTED: Final = re.compile(r"`([^`]*)`")

Evaluate = Callable[[Mapping[str, Any]], Any]

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


class NoResultError(ArithmeticError):
    """The arithmetic has no result: division by zero, overflow, or a string in a sum."""


class Expression:
    """A condition on the values of parameters.

    If the arithmetic has no result (division by zero, overflow, a number compared with a string),
    the condition is false.

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
        self._evaluate = Compiler(self.text).compile(self.tree)
        _check_condition(self.tree, self.text)
        called = {id(n.func) for n in ast.walk(self.tree) if isinstance(n, ast.Call)}
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in called]
        found.sort(key=lambda n: (n.lineno, n.col_offset))
        self.names: tuple[str, ...] = tuple(dict.fromkeys(n.id for n in found))

    def evaluate(self, params: Mapping[str, Value]) -> bool:
        """Whether the condition holds.

        Raises:
            SpaceError: a parameter of the condition has no value.
        """
        try:
            return bool(self._evaluate(params))
        except (ArithmeticError, TypeError):
            return False
        except KeyError as error:
            raise SpaceError(
                f"constraint {show(self.text)} needs a value of {error.args[0]!r}, got none"
            ) from None

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


def _number(value: Any) -> Any:
    """The value if it is a number; refuses strings, so that `*` and `%` are always arithmetic."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NoResultError
    if isinstance(value, int | float):
        return value
    raise NoResultError


def _power(base: Any, exponent: Any) -> Any:
    base, exponent = map(_number, (base, exponent))
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and base.bit_length() * abs(exponent) > MAX_BITS
    ):
        base = float(base)  # as a float it overflows at once instead of growing
    result = base**exponent
    if isinstance(result, complex):
        raise NoResultError
    return result


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise NoResultError
    return value


_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: _finite(_number(a) + _number(b)),
    ast.Sub: lambda a, b: _finite(_number(a) - _number(b)),
    ast.Mult: lambda a, b: _finite(_number(a) * _number(b)),
    ast.Div: lambda a, b: _finite(_number(a) / _number(b)),
    ast.FloorDiv: lambda a, b: _finite(_number(a) // _number(b)),
    ast.Mod: lambda a, b: _finite(_number(a) % _number(b)),
    ast.Pow: lambda a, b: _finite(_power(a, b)),
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.Not: operator.not_,
    ast.USub: lambda a: -_number(a),
    ast.UAdd: _number,
}
COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "min": lambda *items: min(map(_number, items)),
    "max": lambda *items: max(map(_number, items)),
    "abs": lambda item: abs(_number(item)),
}


class Compiler:
    """Compiles a syntax tree to closures; refuses nodes that are not whitelisted."""

    def __init__(self, text: str) -> None:
        self.text = text

    def compile(self, node: ast.AST) -> Evaluate:
        """Compile a node to a function of the parameters; raises SpaceError if it is forbidden."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refuse(node)
        return cast(Evaluate, method(node))

    def refuse(self, node: ast.AST) -> SpaceError:
        """The error that names the part that is not allowed."""
        part = ast.get_source_segment(self.text, node) or type(node).__name__
        return SpaceError(
            f"constraint {show(self.text)} must not contain {show(part)} "
            f"({type(node).__name__}); {GRAMMAR}"
        )

    def _name(self, node: ast.Name) -> Evaluate:
        return operator.itemgetter(node.id)

    def _constant(self, node: ast.Constant) -> Evaluate:
        value = node.value
        big = isinstance(value, int) and value.bit_length() > MAX_BITS
        if (
            not isinstance(value, bool | int | float | str | None)
            or big
            or (isinstance(value, float) and math.isinf(value))
        ):
            raise self.refuse(node)
        return lambda params: value

    def _binop(self, node: ast.BinOp) -> Evaluate:
        apply = _BINARY.get(type(node.op))
        if apply is None:
            raise self.refuse(node)
        left, right = map(self.compile, (node.left, node.right))
        return lambda params: apply(left(params), right(params))

    def _unaryop(self, node: ast.UnaryOp) -> Evaluate:
        apply = _UNARY.get(type(node.op))
        if apply is None:
            raise self.refuse(node)
        operand = self.compile(node.operand)
        return lambda params: apply(operand(params))

    def _boolop(self, node: ast.BoolOp) -> Evaluate:
        values = [self.compile(value) for value in node.values]
        test = all if isinstance(node.op, ast.And) else any
        return lambda params: test(value(params) for value in values)

    def _compare(self, node: ast.Compare) -> Evaluate:
        operands = [node.left, *node.comparators]
        pairs: list[tuple[Callable[[Any, Any], Any], Evaluate, Evaluate]] = []
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            if type(op) not in COMPARISONS:
                raise self.refuse(node)
            compare = COMPARISONS[type(op)]
            pairs.append((compare, self.compile(left), self._right(op, right, node)))
        if len(pairs) == 1:
            compare, first, second = pairs[0]
            return lambda params: compare(first(params), second(params))
        return lambda params: all(
            compare(left(params), right(params)) for compare, left, right in pairs
        )

    def _right(self, op: ast.cmpop, node: ast.expr, compare: ast.Compare) -> Evaluate:
        if not isinstance(op, ast.In | ast.NotIn):
            return self.compile(node)
        if not isinstance(node, ast.Tuple | ast.List | ast.Set) or len(compare.ops) > 1:
            raise self.refuse(compare)
        items = [self.compile(item) for item in node.elts]
        return lambda params: [item(params) for item in items]

    def _call(self, node: ast.Call) -> Evaluate:
        function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is None or node.keywords or not node.args:
            raise self.refuse(node)
        wanted_one = isinstance(node.func, ast.Name) and node.func.id == "abs"
        if wanted_one is not (len(node.args) == 1):
            raise self.refuse(node)
        arguments = [self.compile(argument) for argument in node.args]
        return lambda params: function(*[argument(params) for argument in arguments])
