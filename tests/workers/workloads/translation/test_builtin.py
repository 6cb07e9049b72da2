"""The built-in corpus: determinism, disjoint splits, numbers and word order."""

from __future__ import annotations

import hashlib
import random

from workers.workloads.translation import builtin


def test_sizes_and_distinct_disjoint_splits():
    splits = builtin.splits()
    assert {name: len(pairs) for name, pairs in splits.items()} == {
        "train": 28_000,
        "valid": 1_000,
        "test": 1_000,
    }
    everything = [pair for pairs in splits.values() for pair in pairs]
    assert len(everything) == 30_000
    assert len({en for en, _ in everything}) == len({de for _, de in everything}) == 30_000


def test_the_corpus_is_the_same_everywhere():
    text = "\n".join("\t".join(pair) for pair in builtin.pairs())
    random.seed(5)  # the global generator has no say
    builtin.pairs.cache_clear()
    assert "\n".join("\t".join(pair) for pair in builtin.pairs()) == text
    assert hashlib.sha256(text.encode()).hexdigest() == CHECKSUM


CHECKSUM = "32339306ccf36afd84a73ed1452c941afa7da7c5314f93b87c3bc8e446ee6976"
