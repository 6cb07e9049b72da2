"""The command line: `train KEY=VALUE ...` under one configuration, `translate --model DIR < TEXT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from search_spaces.errors import UsageError

_CHUNK = 4096  # lines read at once, so that translating takes no more memory for a longer text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 failed, 2 wrong usage or data, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["translate"]:
        return _translate(given[1:])
    from workers.standalone import main as train

    return train("translation", given[1:] if given[:1] == ["train"] else given)


def _translate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workers.workloads.translation translate",
        description="Translate standard input, a sentence a line, to standard output.",
    )
    parser.add_argument("--model", required=True, type=Path, help="folder that training or a sweep exported")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses kept a sentence (default: %(default)s)")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="0 for none (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="sentences at once (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    given = parser.parse_args(arguments)
    if min(given.beam, given.batch, given.threads) < 1:
        parser.error("--beam, --batch and --threads must be at least 1")
    import torch

    from .decoding import Search
    from .exported import Translator

    torch.set_num_threads(given.threads)
    search = Search(given.beam, given.length_penalty, batch=given.batch)
    try:
        translator = Translator.load(given.model)
        lines = iter(sys.stdin.buffer)
        while chunk := [line.decode().rstrip("\r\n") for line in islice(lines, _CHUNK)]:
            for text in translator.translate(chunk, search):
                print(text, flush=False)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except UnicodeDecodeError as error:
        print(f"error: standard input is not UTF-8: {error}", file=sys.stderr)
        return 2
    return 0
