"""The pages of the documentation and the code blocks in them."""

from __future__ import annotations

import re
from pathlib import Path

from sources import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "benchmarks", "configs", "docs", "examples", "scripts", "tests")
PAGES = sorted(
    path
    for path in {
        *ROOT.glob("*.md"),
        *(page for top in FOLDERS for page in (ROOT / top).rglob("*.md")),
    }
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)  # environments
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [code for kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


def shown(path: Path) -> str:
    """A path below the checkout, as tests name it."""
    return str(path.relative_to(ROOT))
