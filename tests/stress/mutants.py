"""Mutants: small wrong changes of the code of a function, one at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

SWAPS: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Args:
        function: "file:qualified name".
        name: the same, with the change.
        tree: the module without the change.
        parent: the node that holds the changed node.
        field: the field of the parent.
        index: the index in the field, if that is a list.
        old: the node before the change.
        new: the node after it.
    """

    function: str
    name: str
    tree: ast.Module
    parent: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST

    def code(self) -> CodeType:
        """The changed code of the function."""
        wanted = self.function.partition(":")[2]
        self._put(self.new)
        try:
            module = compile(ast.fix_missing_locations(self.tree), "mutant", "exec")
        finally:
            self._put(self.old)
        return next(code for code in _codes(module) if code.co_qualname == wanted)

    def _put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(root: Path, target: str) -> Iterator[Mutant]:
    """Every mutant of the functions of a file, in the order of the file."""
    tree = ast.parse((root / target).read_text())
    for prefix, owner in [
        ("", tree),
        *((f"{n.name}.", n) for n in tree.body if isinstance(n, ast.ClassDef)),
    ]:
        for function in owner.body:
            if isinstance(function, ast.FunctionDef):
                yield from _of_function(tree, function, f"{target}:{prefix}{function.name}")


def _of_function(tree: ast.Module, function: ast.FunctionDef, name: str) -> Iterator[Mutant]:
    seen: dict[str, int] = {}
    for parent, field, index, node in _places(function):
        for what, new in _changes(node, parent):
            shown = parent if isinstance(node, ast.cmpop | ast.operator | ast.boolop) else node
            label = f"{name} | {ast.unparse(shown).splitlines()[0][:90]} -> {what}"
            seen[label] = seen.get(label, 0) + 1
            label += f" #{seen[label]}" if seen[label] > 1 else ""
            yield Mutant(name, label, tree, parent, field, index, node, new)


def _places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every node of a function's body except docstrings, annotations, errors and logs."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    first = len(function.body) - len(body)
    for i, statement in enumerate(body):
        yield function, "body", first + i, statement
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom) or _is_log(node):
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "ctx", "type_comment"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield node, field, index, child
                yield from _below(child)


def _changes(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The changes of a node: a description and the new node."""
    if type(node) in SWAPS:
        if not (isinstance(parent, ast.BinOp) and _is_text(parent.right)):
            new = SWAPS[type(node)]
            yield new.__name__, new()
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return None", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Expr | ast.Raise | ast.AugAssign | ast.Continue | ast.Break):
        yield "pass", ast.Pass()
    elif isinstance(node, ast.Assign) and not _is_none(node.value):
        yield "= None", ast.Assign(node.targets, ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "not test", _with_test(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "without not", node.operand


def _with_test(node: ast.If | ast.IfExp | ast.While) -> ast.AST:
    new = copy.copy(node)
    new.test = ast.UnaryOp(ast.Not(), node.test)
    return new


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield str(not node.value), ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield f"{node.value + 1}", ast.Constant(node.value + 1)
    elif isinstance(node.value, str):
        yield f"'XX{node.value}'", ast.Constant("XX" + node.value)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_LOG.")


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
