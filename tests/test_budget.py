"""The house stays small: statements by folder, files, keys, verbs, keywords, words of docs.

`python tests/test_budget.py` prints what is there, and that plus 3%. A cap only goes down; a commit
that raises one says why.
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("automl", "workers", "search_spaces")
# Statements are nodes of `ast.stmt`; a file counts in the row of its longest folder.
FOLDERS: dict[str, tuple[str, ...]] = {
    "search_spaces": ("search_spaces",),
    "workers, without workloads": ("workers",),
    "workers/workloads": ("workers/workloads",),
    "core, control, ledger": ("automl/core", "automl/control", "automl/ledger"),
    "dispatch": ("automl/dispatch",),
    "suggesters, stopping": ("automl/suggesters", "automl/stopping"),
    "config, cli, top": ("automl/config", "automl/cli", "automl/*"),
    "report, studio": ("automl/report", "automl/studio"),
    "the rest of automl": ("automl",),
    "product": PRODUCT,
    "tests": ("tests",),
    "benchmarks": ("benchmarks",),
}
CAPS = {
    "search_spaces": 1_900,
    "workers, without workloads": 5_400,
    "workers/workloads": 3_637,
    "core, control, ledger": 3_900,
    "dispatch": 1_200,
    "suggesters, stopping": 3_200,
    "config, cli, top": 2_700,
    "report, studio": 2_092,
    "the rest of automl": 1_900,
    "product": 26_000,
    "tests": 17_000,  # each kind of fault at entrances has a test, and what is named and signed
    "benchmarks": 6_500,
    "files of the product": 223,
    "keys of YAML": 29,  # objective, command, dispatcher, ray_address: `resume` needs no more
    "verbs": 27,
    "keywords of automl.sweep": 23,
    "words of docs": 25_421,
    "pages of docs": 30,
    "kB of results": 1_500,
}
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # the fields that hold statements


def statements(node: ast.AST) -> int:
    """The statements below a node; quicker than `ast.walk`, since expressions hold none."""
    below = [child for field in BLOCKS for child in getattr(node, field, ())]
    return sum(isinstance(child, ast.stmt) + statements(child) for child in below)


def row_of(name: str) -> str:
    """The row that a file of the product belongs to: the one with the longest folder."""
    parent, top = name.rpartition("/")[0], f"{name.rpartition('/')[0]}/*"
    found = {
        folder: row
        for row, folders in FOLDERS.items()
        for folder in folders
        if row != "product" and (folder == top or f"{parent}/".startswith(f"{folder}/"))
    }
    return found[max(found, key=len)] if found else ""


def keywords(path: str, function: str) -> int:
    """How many parameters a function has, without its positional ones."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return len(node.args.kwonlyargs)
    raise AssertionError(f"{path} has no {function}")


def measured() -> dict[str, int]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    found = dict.fromkeys(FOLDERS, 0)
    modules = [name for name in files if name.endswith(".py")]
    for name in modules:
        count, row = statements(ast.parse((ROOT / name).read_bytes())), row_of(name)
        if row:
            found[row] += count
        if name.startswith(PRODUCT):
            found["product"] += count
    pages = [
        name for name in files if name.endswith(".md") and name.startswith(("docs/", "README"))
    ]
    from automl.cli import COMMANDS
    from automl.core.spec import KEYS

    return found | {
        "files of the product": sum(name.startswith(PRODUCT) for name in modules),
        "keys of YAML": len(KEYS),
        "verbs": len(COMMANDS),
        "keywords of automl.sweep": keywords("automl/sweeps.py", "sweep"),
        "words of docs": sum(len((ROOT / page).read_text().split()) for page in pages),
        "pages of docs": len(pages) - 1,
        "kB of results": sum((ROOT / n).stat().st_size for n in files if "/results/" in n) // 1000,
    }


@pytest.fixture(scope="module")
def today() -> dict[str, int]:
    return measured()


@pytest.mark.parametrize("what", CAPS)
def test_the_budget_is_kept(what: str, today: dict[str, int]) -> None:
    assert today[what] <= CAPS[what]


if __name__ == "__main__":
    for what, number in measured().items():
        print(f'    "{what}": {number + number * 3 // 100:_},  # {number:_}')
