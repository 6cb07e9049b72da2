"""`python -m workers translation translate --model DIR < TEXT`, one more command."""

from __future__ import annotations

import argparse
import json
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
    )
    parser.add_argument(
        "--model", required=True, type=Path, help="folder that training or a sweep exported"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="print BLEU against its lines in place of the translations",
    )
    parser.add_argument(
        "--beam", type=int, default=5, help="hypotheses per sentence (default: %(default)s)"
    )
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, help="0 for none (default: %(default)s)"
    )
    parser.add_argument(
        "--length-base",
        type=float,
        default=5.0,
        help="b in ((b + length) / (b + 1))^penalty (default: 5)",
    )
    parser.add_argument(
        "--coverage-penalty", type=float, default=0.0, help="0 for none (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", type=int, default=64, help="sentences at once (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument(
        "--nbest",
        action="store_true",
        help="print a JSON list of [score, text] per line, one entry per hypothesis",
    )
    given = parser.parse_args(arguments)
    if given.length_base < 0:
        parser.error("--length-base must be at least 0")
    if min(given.beam, given.batch, given.threads) < 1:
        parser.error("--beam, --batch and --threads must be at least 1")
    if given.reference and given.nbest:
        parser.error("--reference and --nbest exclude each other")
    references = _references(given.reference) if given.reference else None
    import torch

    from .beam_search import SearchOptions
    from .evaluation import score
    from .translator import Translator

    torch.set_num_threads(given.threads)
    translator = Translator.load(given.model)
    search = SearchOptions(
        given.beam,
        given.length_penalty,
        given.coverage_penalty,
        batch=given.batch,
        length_base=given.length_base,
    )
    lines, translations = iter(sys.stdin.buffer), []
    while chunk := [_text(line) for line in islice(lines, _CHUNK)]:
        if given.nbest:
            texts = [
                json.dumps(found, ensure_ascii=False) for found in translator.nbest(chunk, search)
            ]
        else:
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
