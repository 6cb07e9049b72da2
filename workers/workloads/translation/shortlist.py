"""Vocabulary shortlists: each sentence is translated with the likely entries of its words.

They are learned from the training pairs by IBM Model 1 (Brown et al. 1993,
https://aclanthology.org/J93-2003); the EOS of the source is the empty word. Such shortlists are
described by Jean et al. 2015 (https://arxiv.org/abs/1412.2007, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from search_spaces.errors import DataError

from .batches import Examples, Ids, Sequences
from .inference import Stepper
from .vocabulary import BOS, EOS, PAD

SHORTLIST = "shortlist.safetensors"
_KEPT = 100  # target entries per source entry
_FREQUENT = 200  # target entries for every sentence
_PAIRS = 100_000  # sentence pairs to learn from
_ROUNDS = 4  # of expectation maximisation
_MULTIPLE = 256  # the number of candidates is rounded up to a multiple
_CHUNK = 2000  # sentence pairs processed at once


@dataclass(frozen=True)
class Shortlist:
    """Likely translations of vocabulary entries.

    Args:
        likeliest: the likeliest target entries of each source entry, best first, padded with PAD,
            (v, n).
        frequent: the most frequent target entries, (m,).
    """

    likeliest: Tensor
    frequent: Tensor

    @classmethod
    def learn(cls, examples: Examples, vocabulary_size: int) -> Shortlist:
        """Learn from at most `_PAIRS` training pairs, chosen at random with a fixed seed."""
        rows = np.random.default_rng(0).permutation(len(examples))[:_PAIRS]
        lexicon = _model_one(examples, np.sort(rows), vocabulary_size)
        counts = np.bincount(examples.targets.ids, minlength=vocabulary_size)
        counts[[PAD, BOS]] = 0
        order = np.argsort(-counts, kind="stable")[:_FREQUENT]
        frequent = order[counts[order] > 0].astype(np.int32)
        best = _best(*lexicon, vocabulary_size)
        return cls(torch.from_numpy(best), torch.from_numpy(frequent))

    @classmethod
    def load(cls, folder: Path, size: int, vocabulary_size: int) -> Shortlist:
        """Load an exported shortlist, limited to the `size` likeliest entries per source entry.

        Raises:
            DataError: the folder has no shortlist, or one of another vocabulary.
        """
        try:
            tensors = load_file(folder / SHORTLIST)
            likeliest = tensors["likeliest"]
            frequent = tensors["frequent"]
        except (OSError, KeyError, SafetensorError) as error:
            raise DataError(f"{folder} has no shortlist: {error}") from None
        highest = max(int(likeliest.max()), int(frequent.max()))
        legal = highest < vocabulary_size and int(likeliest.min()) >= 0
        if len(likeliest) != vocabulary_size or not legal:
            raise DataError(
                f"{folder / SHORTLIST} does not fit the model's vocabulary "
                f"of {vocabulary_size} entries"
            )
        return cls(likeliest[:, :size], frequent)

    def save(self, folder: Path) -> None:
        """Write the file."""
        likeliest = self.likeliest.to(torch.int32).contiguous()
        frequent = self.frequent.to(torch.int32).contiguous()
        save_file({"likeliest": likeliest, "frequent": frequent}, folder / SHORTLIST)

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
    """The entries `ids` (n,) that may come next, and a function that scores hidden states for them.

    EOS is the first entry. A shortlist is padded with entries that are never chosen, so that few
    shapes occur: each new shape costs a millisecond or more to build its kernel.
    """

    ids: Tensor
    score: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, stepper: Stepper, source: Tensor, shortlist: Shortlist | None) -> Candidates:
        """Candidates for sources (b, s): the shortlist, or all entries from EOS on."""
        if shortlist is None:
            ids = torch.arange(
                EOS, stepper.model.architecture.vocabulary_size, device=source.device
            )
            return cls(ids, lambda hidden: stepper.score(hidden)[:, EOS:])
        ids = shortlist.entries(source)
        unused = -len(ids) % _MULTIPLE
        ids = nn.functional.pad(ids, (0, unused), value=EOS)
        return cls(ids, stepper.rows(ids, unused))


def _model_one(
    examples: Examples, rows: Ids, size: int
) -> tuple[Ids, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Train IBM Model 1.

    Returns:
        Pairs of entries that occur together, as source * size + target, ascending; and p(target |
            source) of each.
    """
    parts = np.array_split(rows, -(-len(rows) // _CHUNK))
    pairs = np.unique(
        np.concatenate([np.unique(_cells(examples, part, size)[0]) for part in parts])
    )
    chance = np.ones(len(pairs))
    for _ in range(_ROUNDS):
        counts = np.zeros(len(pairs))
        for part in parts:
            cells, position = _cells(examples, part, size)
            index = np.searchsorted(pairs, cells)
            weight = chance[index]
            weight /= np.bincount(position, weight)[position]
            counts += np.bincount(index, weight, minlength=len(pairs))
        chance = counts / np.bincount(pairs // size, counts)[pairs // size]
    return pairs, chance


def _cells(examples: Examples, rows: Ids, size: int) -> tuple[Ids, Ids]:
    """Each source entry paired with each target entry of its sentence.

    Returns:
        source * size + target, and the target position of each pair.
    """
    sources = _flat(examples.sources, rows)
    targets = _flat(examples.targets, rows, skip=1)
    lengths = np.bincount(sources[1], minlength=len(rows))
    times = lengths[targets[1]]  # number of source positions of each target position
    position = np.repeat(np.arange(len(times)), times)
    begin = np.concatenate([[0], np.cumsum(lengths)])[targets[1]]
    within = np.arange(len(position)) - np.repeat(np.cumsum(times) - times, times)
    return sources[0][begin[position] + within] * size + targets[0][position], position


def _flat(sequences: Sequences, rows: Ids, skip: int = 0) -> tuple[Ids, Ids]:
    """Concatenated ids of the given rows without their first `skip`, and the row of each id."""
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
    source, target = np.divmod(pairs[order], size)
    rank = np.arange(len(order)) - np.searchsorted(source, source)
    table = np.full((size, _KEPT), PAD, np.int32)
    kept = rank < _KEPT
    table[source[kept], rank[kept]] = target[kept]
    return table
