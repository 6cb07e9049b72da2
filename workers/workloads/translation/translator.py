"""Trained models as folders of weights, vocabulary and architecture: `export` and `Translator`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from search_spaces.errors import DataError
from workers.device.peak_memory import allocate_by, keep_few_kernels
from workers.export import NoCheckpoint
from workers.training import checkpoint

from . import attention_layouts
from .beam_search import SearchOptions, translate
from .model import Architecture, Transformer
from .vocabulary import EOS, Vocabulary, save

if TYPE_CHECKING:
    from . import Translation

_log = logging.getLogger(__name__)

VOCABULARY = "vocabulary.model"
_WEIGHTS = "model.safetensors"
_ARCHITECTURE = "architecture.json"


def export(workload: Translation, trial: Path, target: Path) -> Mapping[str, str]:
    """Export the newest checkpoint of a trial's folder.

    Args:
        trial: the folder of the trial.
        target: an existing folder to write to.

    Returns:
        Name and description of each file.

    Raises:
        NoCheckpoint: the trial has no intact checkpoint.
    """
    found = checkpoint.load(trial)
    if found is None:
        raise NoCheckpoint(f"{trial} has no checkpoint to export; train it first")
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
            trained = Architecture(**json.loads((folder / _ARCHITECTURE).read_text()))
            # The packed layout needs one matrix product instead of two.
            architecture = replace(trained, layout="packed")
            vocabulary = Vocabulary((folder / VOCABULARY).read_bytes())
            state = load_file(folder / _WEIGHTS)
        except (OSError, ValueError, TypeError, SafetensorError) as error:
            raise DataError(f"{folder} does not hold an exported model: {error}") from None
        if len(vocabulary) != architecture.vocabulary_size:
            raise DataError(
                f"{folder}: the vocabulary has {len(vocabulary)} entries, "
                f"the model {architecture.vocabulary_size}"
            )
        model = Transformer(architecture)
        try:
            model.load_state_dict(
                attention_layouts.native(state, architecture.layout, architecture.head_dim)
            )
        except (RuntimeError, KeyError) as error:
            raise DataError(f"{folder}: the weights do not fit the architecture: {error}") from None
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
