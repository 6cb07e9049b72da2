"""Vocabulary and batches."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from search_spaces.errors import DataError, UsageError
from workers.workloads.translation.batches import Examples, padding, plan_batches
from workers.workloads.translation.data import ParallelCorpus
from workers.workloads.translation.vocabulary import BOS, EOS, PAD, Vocabulary, cached, train


def test_text_comes_back(vocabulary, corpus):
    assert vocabulary.decode(vocabulary.encode(corpus.targets[:50])) == list(corpus.targets[:50])
    assert vocabulary.decode([[BOS, *vocabulary.encode(["Der Hund."])[0], EOS, PAD]]) == [
        "Der Hund."
    ]


def test_the_same_texts_give_the_same_vocabulary(vocabulary, corpus):
    again = train([*corpus.sources, *corpus.targets], 600)
    assert again.proto == vocabulary.proto
    assert len(again) == 600


def test_sizes_that_do_not_fit(corpus):
    assert len(train(["a b", "b a"], 5000)) < 5000  # so many as there are
    with pytest.raises(UsageError, match="vocabulary_size 10 does not fit"):
        train(corpus.sources, 10)


def test_a_damaged_vocabulary_is_refused():
    with pytest.raises(DataError, match="not a sentencepiece model"):
        Vocabulary(b"nonsense")


def _cached(texts, folder):
    return cached(texts, 60, folder).proto


def test_processes_may_train_the_same_vocabulary_at_once(tmp_path, corpus):
    texts = list(corpus.sources[:300])
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        hashes = list(pool.map(_cached, [texts] * 3, [tmp_path / "cache"] * 3))
    assert len(set(hashes)) == 1
    (path,) = (tmp_path / "cache").iterdir()
    written = path.stat().st_mtime_ns
    assert _cached(texts, tmp_path / "cache") == hashes[0]
    assert path.stat().st_mtime_ns == written
    path.write_bytes(b"damaged")
    assert _cached(texts, tmp_path / "cache") == hashes[0]
    assert path.read_bytes() == hashes[0]


@pytest.mark.parametrize("batch_tokens", [64, 512, 1024])
def test_batches_are_full_and_hold_little_padding(examples, batch_tokens):
    batches = [
        examples.batch(rows) for rows in plan_batches(examples, batch_tokens, seed=0, epoch=0)
    ]
    assert padding(batches) <= 0.08
    assert all(batch["labels"].numel() <= batch_tokens for batch in batches)
    rows = [len(batch["source"]) for batch in batches]
    assert min(rows) > 3 or batch_tokens < 100
    filled = [batch["labels"].numel() / batch_tokens for batch in batches]
    assert np.mean(filled) > 0.75


def test_an_epoch_has_each_pair_once_and_is_a_function_of_seed_and_epoch(examples):
    plans = {key: plan_batches(examples, 512, *key) for key in [(0, 0), (0, 1), (1, 0)]}
    for rows in plans.values():
        assert sorted(np.concatenate(rows)) == list(range(len(examples)))
    again = plan_batches(examples, 512, 0, 0)
    assert all(np.array_equal(a, b) for a, b in zip(again, plans[0, 0], strict=True))
    assert not np.array_equal(np.concatenate(plans[0, 0]), np.concatenate(plans[0, 1]))
    assert not np.array_equal(np.concatenate(plans[0, 0]), np.concatenate(plans[1, 0]))


def test_a_batch_is_shifted_and_padded(vocabulary):
    corpus = ParallelCorpus(
        ["the king sees", "the king"], ["der König sieht den Hund", "der König"]
    )
    batch = Examples.of(corpus, vocabulary, 64).batch(np.array([0, 1]))
    long, short = (vocabulary.encode([text])[0] for text in corpus.targets)
    rest = [PAD] * (len(long) - len(short))
    assert batch["shifted"].tolist() == [[BOS, *long], [BOS, *short, *rest]]
    assert batch["labels"].tolist() == [[*long, EOS], [*short, EOS, *rest]]
    assert batch["source"][0].tolist()[-1] == EOS


def test_long_sentences_are_skipped_in_training_and_cut_in_validation(vocabulary):
    corpus = ParallelCorpus(["the king", "the " * 10_000], ["der König", "der König"])
    kept = Examples.of(corpus, vocabulary, 32)
    assert (len(kept), kept.skipped) == (1, 1)
    assert Examples.of(corpus, vocabulary, 32, cut=True).sources.lengths.tolist()[1] == 32


def test_a_sentence_longer_than_a_batch_is_a_batch_of_its_own(examples):
    rows = plan_batches(examples, 4, seed=0, epoch=0)
    assert len(rows) == len(examples)
