"""Prepares data sets: text to ids, once in the parent of the attempts, which share the result."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from search_spaces.errors import DataError

from . import data as corpora
from . import language_tags
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
    data: Mapping[str, Any],
    vocabulary_size: int,
    max_length: int,
    cache: Path | None = None,
    kind: str = "bpe",
) -> Prepared:
    """Read the data set, train or load its vocabulary, and encode it.

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
    tags = language_tags.tags(language_tags.pairs_of(data))
    vocabulary = subwords.cached(texts, vocabulary_size, cache, kind, tags)
    train = Examples.of(splits.train, vocabulary, max_length)
    if len(train) == 0:
        raise DataError(f"every training pair has more than max_length {max_length} tokens")
    return Prepared(
        splits, vocabulary, train, Examples.of(splits.valid, vocabulary, max_length, cut=True)
    )
