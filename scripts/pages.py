"""Check the pages that the site does not check: links that lead nowhere, files that do not exist.

    python scripts/pages.py

A link of README.md and of any other page outside of docs/ must lead to a file, and its anchor to a
heading; `make docs` checks the pages of the site. A path in a page or in a docstring must exist.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automl", "workers", "search_spaces")
FOLDERS = (*PACKAGES, "benchmarks", "configs", "docs", "examples", "scripts", "tests")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
PATH = re.compile(rf"(?<![\w/.~{{-])(?:{'|'.join(FOLDERS)})(?:/[\w.*-]+)+")


def slugs(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    plain = (re.sub(r"[^\w\s-]", "", found) for found in HEADING.findall(page.read_text()))
    return {re.sub(r"[\s-]+", "-", heading.strip().lower()) for heading in plain}


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file or no heading."""
    found = []
    for name, anchor in LINK.findall(CODE.sub("", page.read_text())):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in slugs(target)):
            found.append(f"{name}#{anchor}")
    return found


def missing_files(text: str) -> list[str]:
    """The paths in a text that do not exist; `*` and names in capitals stand for anything."""
    names = {name: re.sub(r"\b[A-Z]{3,}\b", "*", name.rstrip(".")) for name in PATH.findall(text)}
    return [name for name, pattern in names.items() if not any(ROOT.glob(pattern))]


def main() -> int:
    pages = [*ROOT.glob("*.md"), *(page for top in FOLDERS for page in (ROOT / top).rglob("*.md"))]
    pages = [page for page in pages if "/.envs/" not in str(page)]
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    outside = [page for page in pages if not page.is_relative_to(ROOT / "docs")]
    wrong = [(page, link) for page in outside for link in broken_links(page)]
    for path in (*pages, *modules):
        wrong += [(path, name) for name in missing_files(path.read_text())]
    for path, name in wrong:
        print(f"{path.relative_to(ROOT)}: {name} does not exist")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
