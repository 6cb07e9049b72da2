"""The built-in corpus: determinism, disjoint splits, numbers and word order."""

from __future__ import annotations

import hashlib
import random

import pytest

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


@pytest.mark.parametrize(
    ("n", "en", "de"),
    [
        (7, "seven", "sieben"),
        (16, "sixteen", "sechzehn"),
        (30, "thirty", "dreißig"),
        (21, "twenty-one", "einundzwanzig"),
        (1_100, "one thousand one hundred", "eintausendeinhundert"),
        (241_006, "two hundred forty-one thousand six", "zweihunderteinundvierzigtausendsechs"),
    ],
)
def test_numbers_in_words(n, en, de):
    assert builtin.number_words(n) == (en, de)


def test_german_word_order():
    found = dict(builtin.pairs())
    separable = [(en, de) for en, de in found.items() if " call " in en or " calls " in en]
    assert any(de.endswith(" an.") for _, de in separable), "a main clause ends in the prefix"
    assert any(" dass " in de and de.endswith("anruft.") for _, de in separable)
    first = {en: en.partition(",")[0] for en in found if en.startswith("Because ")}
    after = next(found[en] for en, clause in first.items() if " saw " in clause)
    subordinate, _, main = after.partition(", ")
    assert subordinate.endswith("gesehen hat")
    assert not main.startswith(("er ", "sie ", "wir ")), "the verb comes before its subject"
