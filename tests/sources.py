"""The modules of the three packages and the imports between them, read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("automl", "workers", "search_spaces")


def name_of(path: Path) -> str:
    """The dotted name of a module, without `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}


def imports(module: str, everywhere: bool) -> Iterator[str]:
    """The modules that a module imports.

    Args:
        module: its dotted name, a key of `MODULES`.
        everywhere: imports inside functions and those for the type checker count too.
    """
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _targets(node, package)
        elif everywhere or not (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or _typing_only(node)
        ):
            nodes.extend(ast.iter_child_nodes(node))


def _targets(node: ast.ImportFrom, package: str) -> Iterator[str]:
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
    source = ".".join(part for part in (base, node.module) if part)
    for alias in node.names:
        yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in MODULES else source


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def room(module: str) -> str:
    """The folder at the top of a package that holds a module, or the module at the top itself."""
    return ".".join(module.split(".")[:2])


def public_classes(path: Path) -> list[str]:
    """The names of the classes at the top of a module that do not begin with `_`."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [
        node.name
        for node in body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
