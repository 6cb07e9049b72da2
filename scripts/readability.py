"""Count the words that make documentation hard to read.

    python scripts/readability.py [PATH ...] [--check]

The texts are the Markdown pages and the docstrings of the three packages, without code. If paths
are given, only files below them count. For each file the table shows the words, how many of 1,000
words are "where", "if" and "what", and how often a private word of this project occurs, in the text
or in a name that the file defines.

`--check` ends with status 1 if "where" is more than 2.6 or "if" is less than 3 of 1,000 words.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automl", "workers", "search_spaces")
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "workers/**/*.md")
COUNTED = ("where", "if", "what")
MOST_WHERE = 2.6
LEAST_IF = 3.0
# A private word, the field's word for it, and the folder in which the word is the field's own.
PRIVATE = {
    "accounts": ("budget tracker", ""),
    "asked": ("setup, requested", ""),
    "attention": ("signals", "workers search_spaces docs"),
    "belief": ("prior, posterior", ""),
    "bulk": ("batch", ""),
    "halt": ("stop", ""),
    "head": ("cluster head", "workers docs"),
    "killed": ("out of memory", "docs"),
    "neglect": ("forced exploration", ""),
    "neglected": ("forced exploration", ""),
    "noticed": ("stop", ""),
    "phantom": ("fake tensor", ""),
    "pool": ("actors", "workers docs"),
    "reach": ("aspects", ""),
    "told": ("observed, reported", ""),
    "verdict": ("outcome policy", "benchmarks"),
    "wish": ("command", ""),
    "wishes": ("commands", ""),
}
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")
WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass
class Tally:
    """Counts of a file, or of several added up."""

    words: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    private: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.words += other.words
        self.counted += other.counted
        self.private += other.private

    def rate(self, word: str) -> float:
        """How many of 1,000 words are `word`; 0 if there are no words."""
        return 1000 * self.counted[word] / max(1, self.words)


def prose(text: str) -> str:
    """A text without its code blocks, its code in backticks and its addresses."""
    for pattern in (FENCE, ADDRESS, INLINE):
        text = pattern.sub(" ", text)
    return text


def docstrings(tree: ast.Module) -> str:
    """The docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(ast.get_docstring(node) or "" for node in nodes)


def defined_names(tree: ast.Module) -> Iterator[str]:
    """The names of the classes, functions, arguments, variables and attributes of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def tally(text: str, folder: str = "", names: Iterable[str] = ()) -> Tally:
    """Count the words of a text, and the private words in it and in the names beside it.

    Args:
        text: Markdown or docstrings.
        folder: the folder at the top that holds the file; some words are private elsewhere only.
        names: identifiers of the file.
    """
    words = [word.lower() for word in WORD.findall(prose(text))]
    parts = [part.lower() for name in names for part in PART.findall(name)]
    private = [
        word for word in words + parts if word in PRIVATE and folder not in PRIVATE[word][1].split()
    ]
    counted = Counter(word for word in words if word in COUNTED)
    return Tally(len(words), counted, Counter(private))


def count_file(path: Path) -> Tally:
    """Count a Markdown page or a Python file."""
    text = path.read_text(encoding="utf-8")
    relative = path.relative_to(ROOT).parts
    folder = relative[0] if len(relative) > 1 else "docs"
    if path.suffix == ".md":
        return tally(text, folder)
    tree = ast.parse(text)
    return tally(docstrings(tree), folder, defined_names(tree))


def files(under: list[Path]) -> list[Path]:
    """The pages and modules that count; if `under` names any paths, only those below them."""
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    found |= {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    chosen = [path.resolve() for path in under]
    return sorted(
        path
        for path in found
        if not chosen or any(path == other or other in path.parents for other in chosen)
    )


def line(name: str, found: Tally) -> str:
    rates = "".join(f"{found.rate(word):8.1f}" for word in COUNTED)
    words = ", ".join(f"{word} {count}" for word, count in found.private.most_common())
    return f"{name:56}{found.words:8}{rates}{found.private.total():9}  {words}".rstrip()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="*", type=Path, help="count only files below these paths")
    parser.add_argument("--check", action="store_true", help="status 1 if a limit is not kept")
    parser.add_argument("--totals", action="store_true", help="one line per folder, none per file")
    options = parser.parse_args(arguments)
    groups: dict[str, Tally] = {}
    whole = Tally()
    print(f"{'per 1,000 words':56}{'words':>8}{'where':>8}{'if':>8}{'what':>8}{'private':>9}")
    for path in files(options.path):
        relative = path.relative_to(ROOT)
        found = count_file(path)
        if not options.totals:
            print(line(str(relative), found))
        group = "docstrings of " + relative.parts[0] if path.suffix == ".py" else "pages"
        groups.setdefault(group, Tally()).add(found)
        whole.add(found)
    for group in sorted(groups):
        print(line(group, groups[group]))
    print(line("all", whole))
    kept = whole.rate("where") <= MOST_WHERE and whole.rate("if") >= LEAST_IF
    if not kept:
        print(
            f"Of 1,000 words {whole.rate('where'):.1f} are 'where' (limit {MOST_WHERE}) "
            f"and {whole.rate('if'):.1f} are 'if' (at least {LEAST_IF:.0f}). "
            "Write 'if' for a condition."
        )
    return 1 if options.check and not kept else 0


if __name__ == "__main__":
    raise SystemExit(main())
