"""Two more commands of `python -m workers translation`.

`translate --model DIR < TEXT` translates; `convert --model DIR --to FORM --out NEW` writes a model
in another form.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import UsageError

if TYPE_CHECKING:
    from .ct2 import Engine
    from .translator import Translator

_CHUNK = 4096  # lines read at once, so that memory does not grow with the text


def translate(arguments: Sequence[str]) -> None:
    """Translate standard input to standard output.

    Raises:
        UsageError: the model cannot be read, or standard input is not UTF-8.
    """
    parser = _parser("translate", "Translate standard input, one sentence per line.")
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
        "--quantisation", choices=["int8", "bf16"], help="of the weights; faster on CPUs"
    )
    parser.add_argument(
        "--nbest",
        action="store_true",
        help="print a JSON list of [score, text] per line, one entry per hypothesis",
    )
    given = parser.parse_args(arguments)
    if given.length_base < 0:
        parser.error("--length-base must be at least 0")
    if (
        min(given.beam, given.batch, given.threads, given.shortlist or 1) < 1
        or given.shortlist == 0
    ):
        parser.error("--beam, --batch, --threads and --shortlist must be at least 1")
    import torch

    from .beam_search import SearchOptions
    from .translator import Translator

    torch.set_num_threads(given.threads)
    translator = _load(given.model, given.quantisation, given.shortlist, given.threads)
    if given.nbest and not isinstance(translator, Translator):
        raise UsageError("--nbest needs a model that was not converted")
    search = SearchOptions(
        given.beam,
        given.length_penalty,
        given.coverage_penalty,
        batch=given.batch,
        length_base=given.length_base,
    )
    lines = iter(sys.stdin.buffer)
    while chunk := [_text(line) for line in islice(lines, _CHUNK)]:
        if given.nbest and isinstance(translator, Translator):
            texts = [
                json.dumps(found, ensure_ascii=False) for found in translator.nbest(chunk, search)
            ]
        else:
            texts = translator.translate(chunk, search)
        print(*texts, sep="\n")


def _text(line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error}") from error


def _load(
    folder: Path, quantisation: str | None, shortlist: int | None, threads: int
) -> Translator | Engine:
    """The model in a folder, exported or converted."""
    from .translator import Translator

    if (folder / "model.bin").exists():
        from .ct2 import Engine

        if shortlist or quantisation:
            raise UsageError(
                "--shortlist and --quantisation of a converted model are options of `convert`"
            )
        return Engine(folder, threads)
    return Translator.load(folder, quantisation, shortlist)


def convert(arguments: Sequence[str]) -> None:
    """Write an exported model in another format; raises UsageError if that is not possible."""
    parser = _parser("convert", "Write an exported model in another format.")
    parser.add_argument("--to", required=True, choices=["ctranslate2"], help="format")
    parser.add_argument("--out", required=True, type=Path, help="new folder to create")
    parser.add_argument(
        "--quantisation", choices=["int8", "none"], default="int8", help="(default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    if given.shortlist is not None and given.shortlist < 1:
        parser.error("--shortlist must be at least 1")
    if given.out.exists():
        raise UsageError(f"{given.out} already exists; name a new folder")
    from . import ct2

    quantisation = None if given.quantisation == "none" else given.quantisation
    ct2.convert(given.model, given.out, quantisation, given.shortlist)


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that both commands share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m workers translation {command}", description=description
    )
    parser.add_argument(
        "--model", required=True, type=Path, help="folder that training or a sweep exported"
    )
    parser.add_argument(
        "--shortlist", type=int, metavar="K", help="only the K likeliest translations of each entry"
    )
    return parser
