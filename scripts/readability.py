"""Find private words, and conditions that are told with "where", in the project's English.

    python scripts/readability.py [PATH ...]

The texts are the Markdown pages, and the docstrings and comments of the packages, without code. It
ends with status 1 if "where" is more than 2.6 or "if" less than 3 of 1,000 words, or if a word or a
phrase is left that only this project knew.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    *("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md"),
    *("automl/**/*.py", "workers/**/*.py", "workers/**/*.md", "search_spaces/**/*.py"),
)
MAX_WHERE, MIN_IF = 2.6, 3.0  # of 1,000 words
PRIVATE = {"bulk", "halt", "neglect", "neglected", "phantom", "wish", "wishes"}
PHRASES = (
    *("count as none", "everything that is believed", "have been told", "is allowed to be told"),
    *("leave it away", "lets so many others pass", "looks for no request to end"),
    *("say it only where", "stepped in once", "the thought's time", "too good to be true"),
    *("true by construction", "told something", "trials told", "was asked by"),
    *("what was asked", "what was told", "which it else does"),
)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
SPOKEN = re.compile(r'"""(.*?)"""|# ([^\n]*)', re.DOTALL)
WORD = re.compile(r"[a-z]+(?:['’][a-z]+)*")


def prose(path: Path) -> str:
    """The text of a page, or the docstrings and comments of a module, in small letters."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = "\n".join(map("".join, SPOKEN.findall(text)))
    return " ".join(CODE.sub(" ", text).lower().split())


def main(under: list[str]) -> int:
    places = [Path(name).resolve() for name in under] or [ROOT]
    counts: Counter[str] = Counter()
    problems = []
    for path in sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)}):
        if not any(path.is_relative_to(place) for place in places):
            continue
        text = prose(path)
        words = WORD.findall(text)
        counts.update(words)
        left = [*(PRIVATE & {*words}), *(phrase for phrase in PHRASES if phrase in text)]
        problems += [f"{path.relative_to(ROOT)}: write what '{word}' means" for word in left]
    where, if_ = (1000 * counts[word] / max(1, counts.total()) for word in ("where", "if"))
    if where > MAX_WHERE or if_ < MIN_IF:
        problems.append(f"of 1,000 words {where:.1f} are 'where' and {if_:.1f} are 'if'")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
