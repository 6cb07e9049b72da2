"""Trained models as folders of weights, vocabulary and architecture: `export` and `Translator`.

The command `python -m workers translation translate --model DIR < TEXT`: `main`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from search_spaces.errors import DataError, UsageError
from workers.device.peak_memory import allocate_by, keep_few_kernels
from workers.training import checkpoint

from . import attention_layouts
from .beam_search import SearchOptions, translate
from .evaluation import score
from .model import Architecture, Transformer
from .vocabulary import EOS, Vocabulary, save

if TYPE_CHECKING:
    from . import Translation

_log = logging.getLogger(__name__)

VOCABULARY = "vocabulary.model"
_WEIGHTS = "model.safetensors"
_ARCHITECTURE = "architecture.json"
_CHUNK = 4096  # lines read at once, so that memory does not grow with the text


def export(workload: Translation, trial: Path, target: Path) -> Mapping[str, str]:
    """Export the newest checkpoint of a trial's folder.

    Args:
        trial: the folder of the trial.
        target: an existing folder to write to.

    Returns:
        Name and description of each file.

    Raises:
        UsageError: the trial has no intact checkpoint.
    """
    found = checkpoint.load(trial)
    if found is None:
        raise UsageError(f"{trial} has no checkpoint to export; train it first")
    vocabulary = Vocabulary((trial / VOCABULARY).read_bytes())
    save_file(
        {name: tensor.contiguous() for name, tensor in found.model.items()}, target / _WEIGHTS
    )
    save(vocabulary, target / VOCABULARY)
    (target / _ARCHITECTURE).write_text(json.dumps(asdict(workload.architecture), indent=1) + "\n")
    Translator.load(target)  # raises if the files do not fit together
    return {
        _WEIGHTS: "the weights, with separate query, key and value",
        VOCABULARY: "the subword vocabulary (sentencepiece)",
        _ARCHITECTURE: "the architecture of the model",
    }


@dataclass(frozen=True)
class Translator:
    """A model and its vocabulary."""

    model: Transformer
    vocabulary: Vocabulary

    @classmethod
    def load(cls, folder: Path) -> Translator:
        """Load an exported folder.

        Raises:
            DataError: a file is missing or damaged, or the files do not fit together.
        """
        try:
            vocabulary = Vocabulary((folder / VOCABULARY).read_bytes())
            architecture = replace(
                Architecture(**json.loads((folder / _ARCHITECTURE).read_text())),
                layout="packed",  # needs one matrix product instead of two
                vocabulary_size=len(vocabulary),
            )
            model = Transformer(architecture)
            weights = load_file(folder / _WEIGHTS)
            model.load_state_dict(
                attention_layouts.native(weights, architecture.layout, architecture.head_dim)
            )
        except (
            OSError,
            LookupError,
            RuntimeError,
            SafetensorError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError(f"{folder} does not hold an exported model: {error}") from None
        keep_few_kernels(64)  # enough for one batch size and its remainders
        allocate_by(32 << 20, 64 << 20)  # else every batch maps memory for its keys anew
        return cls(model.eval(), vocabulary)

    def translate(self, lines: list[str], search: SearchOptions) -> list[str]:
        """A translation of each line; empty lines stay empty, overlong lines are cut."""
        wanted = [i for i, line in enumerate(lines) if line.strip()]
        room = self.model.architecture.max_length - 1
        encoded = self.vocabulary.encode([lines[i] for i in wanted])
        if cut := sum(len(ids) > room for ids in encoded):
            _log.warning(
                "%d of %d lines have more than %d tokens; they are cut", cut, len(lines), room
            )
        ids = translate(self.model, [[*ids[:room], EOS] for ids in encoded], search)
        results = [""] * len(lines)
        for i, text in zip(wanted, self.vocabulary.decode(ids), strict=True):
            results[i] = text
        return results


def main(arguments: Sequence[str]) -> None:
    """Translate standard input to standard output; with `--reference` print BLEU instead.

    Raises:
        UsageError: the references cannot be read, or are not as many as the lines.
        DataError: the model cannot be read.
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
    translator = Translator.load(given.model)
    lines = (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer)
    translations = []
    while chunk := list(islice(lines, _CHUNK)):
        texts = translator.translate(chunk, SearchOptions(given.beam, batch=64))
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
