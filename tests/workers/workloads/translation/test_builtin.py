"""The built-in corpus: determinism, disjoint splits, grammar."""

from __future__ import annotations

import hashlib
import random

import pytest

from workers.workloads.translation import builtin, builtin_words


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


CHECKSUM = "d72784ae704bbefb3fd29fb5be0208b012d8d2904d04c768f0cf612a4b58cfa3"


@pytest.mark.parametrize(
    ("n", "en", "de"),
    [
        (7, "seven", "sieben"),
        (16, "sixteen", "sechzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (101, "one hundred one", "einhunderteins"),
        (241_006, "two hundred forty-one thousand six", "zweihunderteinundvierzigtausendsechs"),
        (1_000, "one thousand", "eintausend"),
        (999_999, "nine hundred ninety-nine thousand nine hundred ninety-nine", None),
        (1_000_000, "one million", "eine Million"),
    ],
)
def test_numbers(n, en, de):
    assert builtin_words.english_number(n) == en
    if de:
        assert builtin_words.german_number(n) == de


def test_every_number_has_words_of_its_own():
    numbers = [*range(2_000), *random.Random(0).sample(range(2_000, 1_000_001), 20_000)]
    assert len({builtin_words.english_number(n) for n in numbers}) == len(numbers)
    assert len({builtin_words.german_number(n) for n in numbers}) == len(numbers)


def test_times_and_days():
    assert (builtin_words.english_time(3, 30), builtin_words.german_time(3, 30)) == (
        "half past three",
        "halb vier",
    )
    assert (builtin_words.english_time(12, 45), builtin_words.german_time(12, 45)) == (
        "quarter to one",
        "Viertel vor eins",
    )
    assert (builtin_words.english_time(1, 0), builtin_words.german_time(1, 0)) == (
        "one o'clock",
        "ein Uhr",
    )
    assert (builtin_words.english_time(6, 35), builtin_words.german_time(6, 35)) == (
        "twenty-five to seven",
        "fünf nach halb sieben",
    )
    assert [builtin_words.english_ordinal(d) for d in (1, 12, 23, 30)] == [
        "first",
        "twelfth",
        "twenty-third",
        "thirtieth",
    ]
    assert [builtin_words.german_ordinal(d) for d in (1, 3, 7, 21)] == [
        "ersten",
        "dritten",
        "siebten",
        "einundzwanzigsten",
    ]


def test_german_word_order():
    clause = builtin.Clause("he calls my friend", "er", "ruft", "meinen Freund", "", "an")
    assert clause.main() == "er ruft meinen Freund an"
    assert clause.subordinate() == "er meinen Freund anruft"
    assert clause.after() == "ruft er meinen Freund an"


@pytest.mark.parametrize(("kind", "case", "form", "ending"), [
    ("der", "acc", "m", "en"), ("der", "nom", "f", "e"), ("ein", "nom", "m", "er"),
    ("ein", "acc", "n", "es"), ("ein", "acc", "f", "e"), ("ein", "nom", "p", "en"),
    ("strong", "acc", "p", "e"), ("der", "dat", "n", "en"),
])  # fmt: skip
def test_adjective_endings(kind, case, form, ending):
    assert builtin._ending(kind, case, form) == ending
