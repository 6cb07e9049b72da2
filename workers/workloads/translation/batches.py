"""From text to ids, and batches of similar token counts from sentences of similar length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from search_spaces.errors import DataError
from workers.batches import Batch, PlannedBatch

from . import data as corpora
from .data import ParallelCorpus, Splits
from .vocabulary import BOS, EOS, PAD, Vocabulary, cached

Ids = npt.NDArray[np.int64]
_LITTLE = 0.05  # share of padding
_BANDS = (2, 3, 4, 6)  # numbers of target lengths that are sorted together
_ROWS = 8  # rows per batch are a multiple of this if possible, which suits kernels and ranks


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids in one flat array: sequence i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Ids
    offsets: Ids

    @classmethod
    def of(cls, rows: list[list[int]]) -> Sequences:
        """Build from a list of rows."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        flat = np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1]))
        return cls(flat, offsets)

    @property
    def lengths(self) -> Ids:
        """Length of each sequence."""
        return np.diff(self.offsets)

    def padded(self, rows: Ids, part: slice = slice(None)) -> Ids:
        """The sequences of a part of the given rows, padded with PAD to the longest of all rows."""
        length = self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(int(length.max(initial=0)))
        begin = self.offsets[rows[part]]
        length = length[part]
        inside = columns < length[:, None]
        index = np.where(inside, begin[:, None] + columns, 0)
        return np.where(inside, self.ids[index] if len(self.ids) else 0, PAD)


@dataclass(frozen=True)
class Examples:
    """An encoded corpus: sources end in EOS, targets begin with BOS and end in EOS.

    `skipped` is the number of pairs that were left out because they were too long.
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
        """Encode a corpus.

        Args:
            max_length: maximum number of ids of a side, EOS included.
            cut: whether longer pairs are truncated; else they are skipped.
        """
        encoded = vocabulary.encode(corpus.sources), vocabulary.encode(corpus.targets)
        pairs = list(zip(*encoded, strict=True))
        room = max_length - 1
        if cut:
            kept = [(source[:room], target[:room]) for source, target in pairs]
        else:
            kept = [pair for pair in pairs if max(map(len, pair)) <= room]
        sources = Sequences.of([[*source, EOS] for source, _ in kept])
        targets = Sequences.of([[BOS, *target, EOS] for _, target in kept])
        return cls(sources, targets, len(pairs) - len(kept))

    def planned(self, rows: Ids) -> PlannedBatch:
        """The batch of the given rows, see `batch`; its items are the target tokens."""
        tokens = int((self.targets.offsets[rows + 1] - self.targets.offsets[rows] - 1).sum())
        return PlannedBatch(len(rows), tokens, partial(self.batch, rows))

    def batch(self, rows: Ids, part: slice = slice(None)) -> Batch:
        """A batch of the given rows.

        Args:
            part: of the rows; padded as in the whole batch.

        Returns:
            `source` (b, s); `shifted` (b, t), the input of the decoder; `labels` (b, t), its
                targets.
        """
        import torch

        whole = self.targets.padded(rows, part)
        labels = whole[:, 1:]
        shifted = np.where(labels == PAD, PAD, whole[:, :-1])
        arrays = {"source": self.sources.padded(rows, part), "shifted": shifted, "labels": labels}
        return {
            name: torch.from_numpy(np.ascontiguousarray(array, np.int64))
            for name, array in arrays.items()
        }

    def batches(self, batch_tokens: int, seed: int, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, starting at index `skip`."""
        for rows in plan_batches(self, batch_tokens, seed, epoch)[skip:]:
            yield self.planned(rows)


def bucketed(batch: Batch, max_length: int) -> Batch:
    """The batch with its three dimensions rounded up, see `rounded_up`.

    Rows that are added have a source of one EOS, since attention needs a key, and no target.

    Args:
        batch: as `Examples.batch` makes it.
        max_length: of a sentence; it is not exceeded.
    """
    import torch

    rows = len(batch["source"])
    found = {}
    for name, ids in batch.items():
        length = max(ids.shape[1], min(rounded_up(ids.shape[1]), max_length))
        added = (0, length - ids.shape[1], 0, rounded_up(rows) - rows)
        found[name] = torch.nn.functional.pad(ids, added, value=PAD)
    found["source"][rows:, 0] = EOS
    return found


def rounded_up(size: int) -> int:
    """The next of 4, 6, 8, 12, 16, 24, ...: powers of two, and the middles between them."""
    power = max(4, 1 << (size - 1).bit_length())
    return power * 3 // 4 if power > 4 and size <= power * 3 // 4 else power


def plan_batches(examples: Examples, batch_tokens: int, seed: int, epoch: int) -> list[Ids]:
    """Rows of each batch of an epoch; depends on the arguments only.

    Sentences are sorted into bands of target length, and within a band by source length,
    alternately up and down, so that neighbours stay similar; ties are random. They are cut into
    batches of at most `batch_tokens` target positions (a longer sentence gets its own batch), and
    the batches are shuffled. A band is one target length if that leaves little padding, else the
    width that leaves least: wide bands suit large batches.
    """
    rng = np.random.default_rng([seed, epoch])
    targets = examples.targets.lengths - 1
    sources = examples.sources.lengths
    ties = rng.random(len(examples))

    def banded(width: int) -> list[Ids]:
        band = targets // width
        order = np.lexsort((ties, targets, np.where(band % 2, -sources, sources), band))
        return list(_cut(order, targets[order], batch_tokens))

    def positions(batches: list[Ids]) -> int:
        return sum(len(rows) * int(targets[rows].max() + sources[rows].max()) for rows in batches)

    batches = banded(1)
    if int(targets.sum() + sources.sum()) < (1 - _LITTLE) * positions(batches):
        batches = min((batches, *map(banded, _BANDS)), key=positions)
    return [batches[i] for i in rng.permutation(len(batches))]


def _cut(order: Ids, lengths: Ids, batch_tokens: int) -> Iterator[Ids]:
    begin = 0
    total = len(order)
    while begin < total:
        end = begin + _rows(lengths[begin : begin + batch_tokens], batch_tokens)
        if 0 < total - end < _ROWS <= end - begin:
            end = begin + (total - begin + 1) // 2  # share the last two batches evenly
        yield order[begin:end]
        begin = end


def _rows(lengths: Ids, batch_tokens: int) -> int:
    """Number of leading sequences that fit into a batch."""
    most = min(len(lengths), max(1, batch_tokens // int(lengths[0])))
    positions = np.arange(1, most + 1) * np.maximum.accumulate(lengths[:most])
    rows = max(1, int(np.searchsorted(positions, batch_tokens, side="right")))
    return rows - rows % _ROWS if rows > _ROWS else rows


@dataclass(frozen=True)
class Prepared:
    """Text and ids of a data set under one vocabulary."""

    splits: Splits
    vocabulary: Vocabulary
    train: Examples
    valid: Examples


def prepare(
    data: Mapping[str, Any],
    vocabulary_size: int,
    max_length: int,
    cache: Path | None = None,
    kind: str = "bpe",
) -> Prepared:
    """Read the data set, train or load its vocabulary, and encode it.

    The parent of the attempts does so once; they share the result.

    Args:
        data: the `data` section.
        vocabulary_size: entries shared by both languages.
        max_length: maximum number of ids per sentence; longer training pairs are skipped, longer
            validation sentences are cut.
        cache: folder of vocabularies.
        kind: kind of vocabulary entries, see `vocabulary.KINDS`.

    Raises:
        DataError: see `data.load`, or every training pair is too long.
        UsageError: the vocabulary is too small for the corpus.
    """
    return _prepare(
        json.dumps(dict(data), sort_keys=True, default=str),
        corpora.stamp(data),
        vocabulary_size,
        max_length,
        cache,
        kind,
    )


@lru_cache(maxsize=2)
def _prepare(
    key: str, stamp: object, vocabulary_size: int, max_length: int, cache: Path | None, kind: str
) -> Prepared:
    data = json.loads(key)
    splits = corpora.load(data)
    texts = [*splits.train.sources, *splits.train.targets]
    tags = corpora.tags(corpora.pairs_of(data))
    vocabulary = cached(texts, vocabulary_size, cache, kind, tags)
    train = Examples.of(splits.train, vocabulary, max_length)
    if len(train) == 0:
        raise DataError(f"every training pair has more than max_length {max_length} tokens")
    return Prepared(
        splits, vocabulary, train, Examples.of(splits.valid, vocabulary, max_length, cut=True)
    )
