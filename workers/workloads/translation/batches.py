"""Batches of about equal numbers of tokens, of sentences of about equal length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .data import ParallelCorpus
from .vocabulary import BOS, EOS, PAD, Vocabulary

if TYPE_CHECKING:
    from workers.workload import Batch

Ids = npt.NDArray[np.int64]
_LITTLE, _BANDS = 0.05, (2, 3, 4, 6)  # share of padding; target lengths that are sorted together
_ROWS = 8  # batches have a multiple of that many rows where they can, for the kernels and for ranks to share


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids, flat: sequence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: Ids

    @classmethod
    def of(cls, rows: list[list[int]]) -> Sequences:
        """From a list of rows."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        flat = np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1]))
        return cls(flat, offsets)

    @property
    def lengths(self) -> Ids:
        """Length of each sequence."""
        return np.diff(self.offsets)

    def padded(self, rows: Ids) -> Ids:
        """The sequences of those rows, shape (len(rows), longest), filled up with PAD."""
        begin, length = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(int(length.max(initial=0)))
        inside = columns < length[:, None]
        index = np.where(inside, begin[:, None] + columns, 0)
        return np.where(inside, self.ids[index] if len(self.ids) else 0, PAD)


@dataclass(frozen=True)
class Examples:
    """A corpus in ids: sources end in EOS, targets begin with BOS and end in EOS.

    `skipped` pairs had more than the allowed number of tokens and were left out.
    """

    sources: Sequences
    targets: Sequences
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.sources.offsets) - 1

    @classmethod
    def of(
        cls, corpus: ParallelCorpus, vocabulary: Vocabulary, max_length: int, *, cut: bool = False
    ) -> Examples:
        """Encode a corpus; pairs with a side of more than `max_length` ids (EOS included) are skipped, or cut."""
        sources, targets = vocabulary.encode(corpus.sources), vocabulary.encode(corpus.targets)
        pairs = list(zip(sources, targets, strict=True))
        room = max_length - 1
        if cut:
            kept = [(source[:room], target[:room]) for source, target in pairs]
        else:
            kept = [pair for pair in pairs if max(map(len, pair)) <= room]
        skipped = len(pairs) - len(kept)
        rows = ([[*source, EOS] for source, _ in kept], [[BOS, *target, EOS] for _, target in kept])
        return cls(Sequences.of(rows[0]), Sequences.of(rows[1]), skipped)

    def batch(self, rows: Ids) -> Batch:
        """The rows as `source` (b, s), `shifted` (b, t), which the decoder reads, and `labels` (b, t), which follow."""
        import torch

        whole = self.targets.padded(rows)
        labels = whole[:, 1:]
        shifted = np.where(labels == PAD, PAD, whole[:, :-1])
        arrays = {"source": self.sources.padded(rows), "shifted": shifted, "labels": labels}
        return {
            name: torch.from_numpy(np.ascontiguousarray(array, np.int64))
            for name, array in arrays.items()
        }

    def batches(self, batch_tokens: int, seed: int, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from the one of that index on."""
        for rows in plan_batches(self, batch_tokens, seed, epoch)[skip:]:
            yield self.batch(rows)

    def sample(self) -> Examples:
        """All of them."""
        return self


def plan_batches(examples: Examples, batch_tokens: int, seed: int, epoch: int) -> list[Ids]:
    """Rows of each batch of an epoch, a function of the arguments alone.

    Sentences are sorted into bands of target length, within a band by source length, up and down in turns so that
    neighbours stay alike, and else at random; then cut into batches of at most `batch_tokens` target positions (a
    longer sentence is a batch of its own); then the batches are shuffled. Bands are of one length where that leaves
    little padding, else of the width that leaves least: wide ones suit large batches, which hold many lengths.
    """
    rng = np.random.default_rng([seed, epoch])
    targets, sources = examples.targets.lengths - 1, examples.sources.lengths
    ties = rng.random(len(examples))

    def banded(width: int) -> list[Ids]:
        band = targets // width
        order = np.lexsort((ties, targets, np.where(band % 2, -sources, sources), band))
        return list(_cut(order, targets[order], batch_tokens))

    def positions(batches: list[Ids]) -> int:
        return sum(len(rows) * int(targets[rows].max() + sources[rows].max()) for rows in batches)

    batches, tokens = banded(1), int(targets.sum() + sources.sum())
    if tokens < (1 - _LITTLE) * positions(batches):
        batches = min((batches, *map(banded, _BANDS)), key=positions)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(order: Ids, lengths: Ids, batch_tokens: int) -> Iterator[Ids]:
    begin, total = 0, len(order)
    while begin < total:
        end = begin + _rows(lengths[begin : begin + batch_tokens], batch_tokens)
        if (
            0 < total - end < _ROWS <= end - begin
        ):  # too few for a batch of their own: share the last two batches evenly
            end = begin + (total - begin + 1) // 2
        yield order[begin:end]
        begin = end


def _rows(lengths: Ids, batch_tokens: int) -> int:
    """How many of the sequences fit from the first on."""
    most = min(len(lengths), max(1, batch_tokens // int(lengths[0])))
    positions = np.arange(1, most + 1) * np.maximum.accumulate(lengths[:most])
    rows = max(1, int(np.searchsorted(positions, batch_tokens, side="right")))
    return rows - rows % _ROWS if rows > _ROWS else rows


def padding(batches: list[Batch]) -> float:
    """Share of positions, source and target together, that hold padding."""
    sides = [batch[key] for batch in batches for key in ("source", "labels")]
    positions = sum(side.numel() for side in sides)
    return sum(int((side == PAD).sum()) for side in sides) / max(1, positions)
