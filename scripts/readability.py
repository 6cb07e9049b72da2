"""Measure how easily the project's English reads, and find its private words.

    python scripts/readability.py [PATH ...] [--check] [--totals]

The texts are the Markdown pages, the docstrings, messages and comments of the packages, and the
comments of the configurations, all without code. If paths are given, only files below them count.
For each file a line shows the words, the median number of words in a sentence, how many of 1,000
words are "where", "if" and "what", and the private words. A table of all private words follows.

A private word has a sense that only this project knew. Three rules tell it from plain English:

- `ALWAYS`: a word that nobody needs. It counts in texts and in names, also as a part of a name.
- `AS_NAME`: a word of plain English, such as "asked". A sentence shows what it means, so it does
  not count in texts. As a whole name (`asked`, `self._asked`, `asked.py`) it says too little and
  counts; as a part (`cluster_head`) it is explained by the rest.
- `PHRASES`: turns of speech that count in texts.

A word that is a library's or the field's own counts as plain English in the folders named with it:
attention in a Transformer, a pool of candidates. Names that ledgers or other processes store keep
their spelling, and their files are named too.

`--check` ends with status 1 if "where" is more than 2.6 or "if" less than 3 of 1,000 words, or if a
private word is left.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automl", "workers", "search_spaces")
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "workers/**/*.md")
COUNTED = ("where", "if", "what")
MAX_WHERE = 2.6
MIN_IF = 3.0
MODELS = ("workers", "search_spaces/knobs")
# The word, the field's word for it, and the places in which it is the field's own or stored.
ALWAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bulk": ("batch", ()),
    "halt": ("stop", ()),
    "neglect": ("forced exploration", ()),
    "neglected": ("rare, least tried", ()),
    "phantom": ("fake tensor", ()),
    "verdict": ("outcome policy", ("benchmarks",)),
    "wish": ("command", ("automl/ledger/old_tables.py",)),  # stored
    "wishes": ("commands", ()),
}
AS_NAME: dict[str, tuple[str, tuple[str, ...]]] = {
    "accounts": ("budget tracker", ()),
    "again": ("retrain", ()),
    "asked": ("request", ("automl/core",)),  # stored
    "attention": ("signals", MODELS),
    "belief": ("prior", ()),  # a public key in the plural, and piBO's word
    "codec": ("text limits", ()),
    "forecasts": ("memory guard", ()),
    "head": ("cluster head, header", ("workers", "automl/ledger")),  # of a log
    "killed": ("out of memory", ()),
    "leaving": ("draining", ()),
    "noticed": ("stop", ()),
    "pool": (
        "workers, candidates",
        (
            "automl/dispatch/ray",  # Ray's ActorPool
            "automl/ledger",  # SQLAlchemy's connection pool
            "automl/suggesters/bayes",  # a pool of candidates
            "workers",  # a pooling layer
        ),
    ),
    "reach": ("aspects", ()),
    "reading": ("YAML reader", ()),
    "told": ("observations", ()),
}
MODULES_ONLY = ("again",)  # a fine name of a variable
PHRASES = (
    "count as none",
    "everything that is believed",
    "have been told",
    "is allowed to be told",
    "leave it away",
    "lets so many others pass",
    "looks for no request to end",
    "say it only where",
    "stepped in once",
    "the thought's time",
    "too good to be true",
    "true by construction",
    "told something",
    "trials told",
    "was asked by",
    "what was asked",
    "what was told",
    "which it else does",
)
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")
ROW = re.compile(r"^ *[|#].*$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)*")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
END = re.compile(r"[.!?:](?=\s|$)|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s")
MIN_SENTENCE = 3
MIN_MESSAGE = 3


@dataclass
class Tally:
    """Counts of a file, or of several added up."""

    words: int = 0
    sentences: list[int] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    private: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.words += other.words
        self.sentences += other.sentences
        self.counted += other.counted
        self.private += other.private

    def rate(self, word: str) -> float:
        """How many of 1,000 words are `word`; 0 if there are no words."""
        return 1000 * self.counted[word] / max(1, self.words)

    def sentence(self) -> float:
        """The median number of words in a sentence; 0 if there is none."""
        return float(median(self.sentences)) if self.sentences else 0.0


def prose(text: str) -> str:
    """A text without its code blocks, its code in backticks and its addresses."""
    text = ADDRESS.sub(" ", FENCE.sub(" ", text))
    return INLINE.sub(" it ", text)


def sentences(text: str) -> list[int]:
    """The number of words in each sentence of a prose; tables and headings are none."""
    counts = (len(WORD.findall(part)) for part in END.split(ROW.sub("", text)))
    return [count for count in counts if count >= MIN_SENTENCE]


def docstrings(tree: ast.Module) -> str:
    """The docstrings of a module, its classes and its functions."""
    return "\n\n".join(ast.get_docstring(node) or "" for node in _documented(tree))


def messages(tree: ast.Module) -> str:
    """The strings of a module that have several words, without its docstrings."""
    owned = {id(node.body[0].value) for node in _documented(tree) if _opens_with_string(node)}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in owned and len(WORD.findall(node.value)) >= MIN_MESSAGE:
            found.append(node.value)
    return "\n\n".join(found)


def comments(text: str) -> str:
    """The comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n\n".join(comment.lstrip("# ") for comment in found)


def _documented(tree: ast.Module) -> list[ast.Module | ast.ClassDef | ast.FunctionDef]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _opens_with_string(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return ast.get_docstring(node) is not None


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


def _private_names(names: Iterable[str], file: str) -> Iterator[str]:
    for name in names:
        whole = name.strip("_").lower()
        known = AS_NAME.get(whole)
        counts = whole not in MODULES_ONLY or Path(file).stem == whole
        if known and counts and not _allowed(known[1], file):
            yield whole
        for part in PART.findall(name):
            if part.lower() in ALWAYS and not _allowed(ALWAYS[part.lower()][1], file):
                yield part.lower()


def _allowed(places: Iterable[str], file: str) -> bool:
    return any(file == place or file.startswith(f"{place}/") for place in places)


def tally(text: str, file: str = "", names: Iterable[str] = ()) -> Tally:
    """Count the words of a text, and the private words in it and in the names beside it.

    Args:
        text: Markdown, docstrings, messages or comments.
        file: its path in the checkout; some words are private elsewhere only.
        names: identifiers of the file.
    """
    plain = prose(text)
    words = [word.lower() for word in WORD.findall(plain)]
    found = [word for word in words if word in ALWAYS and not _allowed(ALWAYS[word][1], file)]
    line = " ".join(plain.lower().split())
    found += [phrase for phrase in PHRASES for _ in range(line.count(phrase))]
    found += _private_names(names, file)
    counted = Counter(word for word in words if word in COUNTED)
    return Tally(len(words), sentences(plain), counted, Counter(found))


def count_file(path: Path) -> Tally:
    """Count a Markdown page, a configuration's comments, or a Python file."""
    text = path.read_text(encoding="utf-8")
    file = path.relative_to(ROOT).as_posix()
    if path.suffix == ".md":
        return tally(text, file)
    if path.suffix == ".yaml":
        return tally("\n".join(re.findall(r"(?:^|\s)#(.*)", text)), file)
    tree = ast.parse(text)
    names = (path.stem, *defined_names(tree))
    return tally("\n\n".join((docstrings(tree), messages(tree), comments(text))), file, names)


def files(under: list[Path]) -> list[Path]:
    """The files that count; if `under` names any paths, only those below them."""
    found = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    found |= {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    found |= set((ROOT / "configs").rglob("*.yaml"))
    chosen = [path.resolve() for path in under]
    return sorted(
        path
        for path in found
        if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        and (not chosen or any(path == other or other in path.parents for other in chosen))
    )


def line(name: str, found: Tally) -> str:
    rates = "".join(f"{found.rate(word):8.1f}" for word in COUNTED)
    words = ", ".join(f"{word} {count}" for word, count in found.private.most_common())
    return f"{name:56}{found.words:8}{found.sentence():10.0f}{rates}  {words}".rstrip()


def private_table(found: Tally) -> Iterator[str]:
    """A line for each private word: how often it occurs, and what to write instead."""
    for word, (better, _) in sorted({**ALWAYS, **AS_NAME}.items()):
        kind = "texts and names" if word in ALWAYS else "names"
        yield f"{word:32}{found.private[word]:6}  in {kind:16} better: {better}"
    for phrase in PHRASES:
        yield f"{phrase:32}{found.private[phrase]:6}  in texts"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="*", type=Path, help="count only files below these paths")
    parser.add_argument("--check", action="store_true", help="status 1 if a limit is not kept")
    parser.add_argument("--totals", action="store_true", help="one line per folder, none per file")
    options = parser.parse_args(arguments)
    groups: dict[str, Tally] = {}
    whole = Tally()
    columns = "".join(f"{word:>8}" for word in COUNTED)
    print(f"{'per 1,000 words':56}{'words':>8}{'sentence':>10}{columns}  private")
    for path in files(options.path):
        relative = path.relative_to(ROOT)
        found = count_file(path)
        if not options.totals:
            print(line(str(relative), found))
        group = relative.parts[0] if path.suffix != ".md" else "pages"
        groups.setdefault(group, Tally()).add(found)
        whole.add(found)
    for group in sorted(groups):
        print(line(group, groups[group]))
    print(line("all", whole))
    print()
    print("\n".join(private_table(whole)))
    problems = list(_problems(whole))
    print("\n".join(problems))
    return 1 if options.check and problems else 0


def _problems(found: Tally) -> Iterator[str]:
    if found.rate("where") > MAX_WHERE or found.rate("if") < MIN_IF:
        yield (
            f"Of 1,000 words {found.rate('where'):.1f} are 'where' (limit {MAX_WHERE}) "
            f"and {found.rate('if'):.1f} are 'if' (at least {MIN_IF:.0f}). "
            "Write 'if' for a condition."
        )
    if found.private:
        yield f"{found.private.total()} private words are left: write what they mean."


if __name__ == "__main__":
    raise SystemExit(main())
