"""Who may import whom, read from the source; and what must stay light, tried in a fresh interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "search_spaces": {"search_spaces"},
    "workers": {"workers", "search_spaces"},
    "automl": {"automl", "workers", "search_spaces"},
}
HEAVY = ("torch", "ray", "optuna", "ax", "botorch", "gpytorch", "pandas", "plotly", "sentencepiece")
LIGHT = (
    "automl",
    "automl.config",
    "automl.errors",
    "automl.core.goals",
    "automl.ledger",
    "automl.core.snapshot",
    "automl.core.spec",
    "automl.core.trial",
    "search_spaces",
    "search_spaces.expressions",
    "search_spaces.hardware",
    "search_spaces.knobs",
    "search_spaces.plugins",
    "workers.context",
    "workers.parallel",
    "workers.protocol",
    "workers.workload",
)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))
}


def imports(module: str, everywhere: bool) -> Iterator[str]:
    """Modules that a module imports by name: anywhere, or only when it is itself imported."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from targets(node, package)
        elif everywhere or not (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or typing_only(node)
        ):
            nodes.extend(ast.iter_child_nodes(node))


def targets(node: ast.ImportFrom, package: str) -> Iterator[str]:
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
    source = ".".join(part for part in (base, node.module) if part)
    for alias in node.names:
        yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in MODULES else source


def typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def test_the_sources_are_found() -> None:
    assert {"automl", "workers", "search_spaces", "search_spaces.knobs.base"} <= set(MODULES)
    assert "search_spaces.errors" in set(imports("search_spaces.definition", everywhere=False))


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.split(".")[0] == package
        for target in imports(module, everywhere=True)
        if target.split(".")[0] in {*ALLOWED, "tests", "benchmarks", "examples"} - ALLOWED[package]
    ]
    assert wrong == []


def test_no_module_level_cycles() -> None:
    graph = {
        module: sorted(set(imports(module, everywhere=False)) & set(MODULES) - {module})
        for module in MODULES
    }
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        walk: list[tuple[str, Iterator[str]]] = (
            [] if start in done else [(start, iter(graph[start]))]
        )
        path += [start] if walk else []
        while walk:
            module, rest = walk[-1]
            following = next(rest, None)
            if following is None:
                done.add(module)
                walk.pop()
                path.pop()
                continue
            assert following not in path, "cycle: " + " -> ".join(
                [*path[path.index(following) :], following]
            )
            if following not in done:
                walk.append((following, iter(graph[following])))
                path.append(following)


def test_what_the_light_commands_need_stays_light() -> None:
    present = [module for module in LIGHT if module in MODULES]
    code = (
        "import importlib, sys\n"
        f"for name in {present!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
