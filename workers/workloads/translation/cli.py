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
    from .exported import Translator

_CHUNK = 4096  # lines read at once, so that translating takes no more memory for a longer text


def translate(arguments: Sequence[str]) -> None:
    """Translate standard input to standard output.

    Raises:
        UsageError: the model cannot be read, or standard input is not UTF-8.
    """
    parser = argparse.ArgumentParser(
        prog="python -m workers translation translate",
        description="Translate standard input, a sentence a line, to standard output.",
    )
    parser.add_argument(
        "--model", required=True, type=Path, help="folder that training or a sweep exported"
    )
    parser.add_argument(
        "--beam", type=int, default=5, help="hypotheses kept a sentence (default: %(default)s)"
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
        "--shortlist", type=int, metavar="K", help="only the K likeliest translations of each entry"
    )
    parser.add_argument(
        "--batch", type=int, default=64, help="sentences at once (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    parser.add_argument(
        "--quantisation", choices=["int8", "bf16"], help="of the matrices; faster on CPUs"
    )
    parser.add_argument(
        "--nbest",
        action="store_true",
        help="a JSON list of [score, text] a line, as long as the beam",
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

    from .decoding import Search
    from .exported import Translator

    torch.set_num_threads(given.threads)
    translator = _load(given.model, given.quantisation, given.shortlist, given.threads)
    if given.nbest and not isinstance(translator, Translator):
        raise UsageError("--nbest needs a model that was not converted")
    search = Search(
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
        for text in texts:
            print(text, flush=False)


def _text(line: bytes) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8: {error}") from error


def _load(
    folder: Path, quantisation: str | None, shortlist: int | None, threads: int
) -> Translator | Engine:
    """The model in a folder of either kind."""
    from .exported import Translator

    if (folder / "model.bin").exists():
        from .ct2 import Engine

        if shortlist or quantisation:
            raise UsageError(
                "--shortlist and --quantisation of a converted model are said to `convert`"
            )
        return Engine(folder, threads)
    return Translator.load(folder, quantisation, shortlist)


def convert(arguments: Sequence[str]) -> None:
    """Write an exported model in another form; raises UsageError if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m workers translation convert",
        description="Write an exported model in another form.",
    )
    parser.add_argument(
        "--model", required=True, type=Path, help="folder that training or a sweep exported"
    )
    parser.add_argument("--to", required=True, choices=["ctranslate2"], help="form")
    parser.add_argument("--out", required=True, type=Path, help="folder that is made")
    parser.add_argument(
        "--quantisation", choices=["int8", "none"], default="int8", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--shortlist", type=int, metavar="K", help="only the K likeliest translations of each entry"
    )
    given = parser.parse_args(arguments)
    if given.shortlist is not None and given.shortlist < 1:
        parser.error("--shortlist must be at least 1")
    if given.out.exists():
        raise UsageError(f"{given.out} is there already")
    from . import ct2

    ct2.convert(
        given.model,
        given.out,
        None if given.quantisation == "none" else given.quantisation,
        given.shortlist,
    )
