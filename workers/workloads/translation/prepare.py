"""From the `data` section to ids, once a process: warm workers keep what they prepared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from search_spaces.errors import DataError

from . import data as corpora
from . import vocabulary as subwords
from .batches import Examples
from .data import Splits
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Prepared:
    """Text and ids of a data set under one vocabulary."""

    splits: Splits
    vocabulary: Vocabulary
    train: Examples
    valid: Examples


def prepare(
    data: Mapping[str, Any], vocabulary_size: int, max_length: int, cache: Path | None = None, kind: str = "bpe"
) -> Prepared:
    """Read the data set, train or find its vocabulary, and encode it.

    Args:
        data: the `data` section.
        vocabulary_size: entries shared by both languages.
        max_length: most ids of a sentence; longer training pairs are left out, longer validation sentences cut.
        cache: folder of vocabularies.
        kind: of the vocabulary's entries, see `vocabulary.KINDS`.

    Raises:
        DataError: see `data.load`, or no training pair is short enough.
        UsageError: the vocabulary is too small for the corpus.
    """
    key = json.dumps(dict(data), sort_keys=True, default=str)
    return _prepare(key, corpora.stamp(data), vocabulary_size, max_length, cache, kind)


@lru_cache(maxsize=2)
def _prepare(key: str, stamp: object, vocabulary_size: int, max_length: int, cache: Path | None, kind: str) -> Prepared:
    splits = corpora.load(json.loads(key))
    texts = [*splits.train.sources, *splits.train.targets]
    vocabulary = subwords.cached(texts, vocabulary_size, cache, kind)
    train = Examples.of(splits.train, vocabulary, max_length)
    if len(train) == 0:
        raise DataError(f"every training pair has more than max_length {max_length} tokens")
    return Prepared(splits, vocabulary, train, Examples.of(splits.valid, vocabulary, max_length, cut=True))
