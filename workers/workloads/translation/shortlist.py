"""Vocabulary shortlists: a sentence is translated with the entries that its words are likely to become.

Which those are is learned from the training pairs by IBM Model 1 (Brown et al. 1993,
https://aclanthology.org/J93-2003); the source's EOS stands for the empty word. Shortlists so made are those of Jean et
al. 2015 (https://arxiv.org/abs/1412.2007, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from search_spaces.errors import DataError

from .batches import Examples, Ids, Sequences
from .vocabulary import BOS, EOS, PAD

if TYPE_CHECKING:
    from .inference import Stepper

FILE = "shortlist.safetensors"
_KEPT, _FREQUENT = 100, 200  # entries a source entry, and entries that every sentence gets
_PAIRS, _ROUNDS = (
    100_000,
    4,
)  # sentence pairs that are learned from, and rounds of expectation-maximisation
_MULTIPLE = 256  # of the entries of a batch
_CHUNK = 2000  # sentence pairs at once


@dataclass(frozen=True)
class Shortlist:
    """What may be translated into what.

    `likeliest` (v, n): for each source entry the likeliest target entries, best first, PAD where there are fewer;
    `frequent` (m,): the most frequent target entries.
    """

    likeliest: Tensor
    frequent: Tensor

    @classmethod
    def learn(cls, examples: Examples, vocabulary_size: int) -> Shortlist:
        """From training pairs, of which the first `_PAIRS` of a fixed order are taken."""
        rows = np.random.default_rng(0).permutation(len(examples))[:_PAIRS]
        lexicon = _model_one(examples, np.sort(rows), vocabulary_size)
        counts = np.bincount(examples.targets.ids, minlength=vocabulary_size)
        counts[[PAD, BOS]] = 0
        order = np.argsort(-counts, kind="stable")[:_FREQUENT]
        frequent = order[counts[order] > 0]
        return cls(
            torch.from_numpy(_best(*lexicon, vocabulary_size)),
            torch.from_numpy(frequent.astype(np.int32)),
        )

    @classmethod
    def load(cls, folder: Path, size: int, vocabulary_size: int) -> Shortlist:
        """The `size` likeliest entries of each source entry, of what was exported to a folder.

        Raises:
            DataError: it holds no shortlist, or one of another vocabulary.
        """
        try:
            tensors = load_file(folder / FILE)
            likeliest, frequent = tensors["likeliest"], tensors["frequent"]
        except (OSError, KeyError, SafetensorError) as error:
            raise DataError(f"{folder} holds no shortlist: {error}") from None
        highest = max(int(likeliest.max()), int(frequent.max()))
        if (
            len(likeliest) != vocabulary_size
            or highest >= vocabulary_size
            or int(likeliest.min()) < 0
        ):
            raise DataError(
                f"{folder / FILE} is of another vocabulary than the model's {vocabulary_size} entries"
            )
        return cls(likeliest[:, :size], frequent)

    def save(self, folder: Path) -> None:
        """Write the file."""
        tensors = {"likeliest": self.likeliest, "frequent": self.frequent}
        save_file(
            {name: tensor.to(torch.int32).contiguous() for name, tensor in tensors.items()},
            folder / FILE,
        )

    def entries(self, source: Tensor) -> Tensor:
        """Target entries for a batch of ids (b, s), ascending, EOS first."""
        wanted = torch.zeros(len(self.likeliest), dtype=torch.bool)
        wanted[self.likeliest[torch.unique(source).cpu()].flatten().long()] = True
        wanted[self.frequent.long()] = True
        wanted[EOS] = True
        wanted[:EOS] = False
        return wanted.nonzero()[:, 0].to(source.device)


@dataclass(frozen=True)
class Candidates:
    """The entries `ids` (n,) that may come next, EOS first, and how hidden states (m, width) are scored for them.

    Behind a shortlist stand entries that are never chosen, so that products of few shapes occur: each new one costs a
    millisecond or more, in which its kernel is made.
    """

    ids: Tensor
    score: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, stepper: Stepper, source: Tensor, shortlist: Shortlist | None) -> Candidates:
        """For a batch of sources (b, s): its shortlist, or all that is no special entry but EOS."""
        if shortlist is None:
            ids = torch.arange(
                EOS, stepper.model.architecture.vocabulary_size, device=source.device
            )
            return cls(ids, lambda hidden: stepper.score(hidden)[:, EOS:])
        ids = shortlist.entries(source)
        unused = -len(ids) % _MULTIPLE
        ids = functional.pad(ids, (0, unused), value=EOS)
        return cls(ids, stepper.rows(ids, unused))


def _model_one(
    examples: Examples, rows: Ids, size: int
) -> tuple[Ids, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Pairs of entries that occur together, as source * size + target, ascending, and p(target | source) of each."""
    found = [
        np.unique(_cells(examples, part, size)[0])
        for part in np.array_split(rows, -(-len(rows) // _CHUNK))
    ]
    pairs = np.unique(np.concatenate(found))
    del found
    chance = np.ones(len(pairs))
    for _ in range(_ROUNDS):
        counts = np.zeros(len(pairs))
        for part in np.array_split(rows, -(-len(rows) // _CHUNK)):
            cells, position = _cells(examples, part, size)
            index = np.searchsorted(pairs, cells)
            weight = chance[index]
            weight /= np.bincount(position, weight)[position]
            counts += np.bincount(index, weight, minlength=len(pairs))
        chance = counts / np.bincount(pairs // size, counts)[pairs // size]
    return pairs, chance


def _cells(examples: Examples, rows: Ids, size: int) -> tuple[Ids, Ids]:
    """Each source entry with each target entry of its sentence: source * size + target, and which target position."""
    sources, targets = _flat(examples.sources, rows), _flat(examples.targets, rows, skip=1)
    lengths = np.bincount(sources[1], minlength=len(rows))
    times = lengths[targets[1]]  # source positions of each target position
    position = np.repeat(np.arange(len(times)), times)
    begin = np.concatenate([[0], np.cumsum(lengths)])[targets[1]]
    within = np.arange(len(position)) - np.repeat(np.cumsum(times) - times, times)
    return sources[0][begin[position] + within] * size + targets[0][position], position


def _flat(sequences: Sequences, rows: Ids, skip: int = 0) -> tuple[Ids, Ids]:
    """Ids of those rows without their first `skip`, one after the other, and the number of each one's row."""
    begin = sequences.offsets[rows] + skip
    lengths = sequences.offsets[rows + 1] - begin
    number = np.repeat(np.arange(len(rows)), lengths)
    within = np.arange(len(number)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return sequences.ids[begin[number] + within].astype(np.int64), number


def _best(
    pairs: Ids, chance: np.ndarray[tuple[int], np.dtype[np.float64]], size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """The likeliest targets of each source, (size, `_KEPT`)."""
    order = np.lexsort((-chance, pairs // size))
    source, target = pairs[order] // size, pairs[order] % size
    rank = np.arange(len(order)) - np.searchsorted(source, source)
    table = np.full((size, _KEPT), PAD, np.int32)
    kept = rank < _KEPT
    table[source[kept], rank[kept]] = target[kept]
    return table
