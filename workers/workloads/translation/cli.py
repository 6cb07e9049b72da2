"""`python -m workers translation translate --model DIR < TEXT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from search_spaces.errors import UsageError

_CHUNK = 4096  # lines read at once, so that memory does not grow with the text


def translate(arguments: Sequence[str]) -> None:
    """Translate standard input to standard output; with `--reference` print BLEU instead.

    Raises:
        UsageError: the model or the references cannot be read, or a text is not UTF-8.
    """
    parser = argparse.ArgumentParser(
        prog="python -m workers translation translate",
        description="Translate standard input, one sentence per line.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, type=Path, help="folder that training or a sweep exported")
    add("--reference", type=Path, metavar="FILE", help="print BLEU against its lines in place")
    add("--beam", type=int, default=5, help="hypotheses per sentence")
    given = parser.parse_args(arguments)
    if given.beam < 1:
        parser.error("--beam must be at least 1")
    references = _references(given.reference) if given.reference else None
    from .beam_search import SearchOptions
    from .evaluation import score
    from .translator import Translator

    translator = Translator.load(given.model)
    search = SearchOptions(given.beam, batch=64)
    lines, translations = iter(sys.stdin.buffer), []
    while chunk := [_text(line) for line in islice(lines, _CHUNK)]:
        texts = translator.translate(chunk, search)
        if references is None:
            print(*texts, sep="\n")
        else:
            translations += texts
    if references is None:
        return
    if len(translations) != len(references):
        raise UsageError(
            f"standard input has {len(translations)} lines, {given.reference} {len(references)}"
        )
    print(f"BLEU {score(translations, references).bleu:.2f}")


def _references(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"--reference {path} cannot be read: {error}") from error


def _text(line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error}") from error
