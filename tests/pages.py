"""The pages of the documentation and the code blocks in them."""

import re
from pathlib import Path

from sources import ROOT

PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")}
)
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [code for kind, code in BLOCK.findall(page.read_text("utf-8")) if kind == language]


def write_files(page: Path, folder: Path) -> None:
    """Write the blocks of a page that have a title."""
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")


def shown(path: Path) -> str:
    """A path below the checkout, as tests name it."""
    return str(path.relative_to(ROOT))
