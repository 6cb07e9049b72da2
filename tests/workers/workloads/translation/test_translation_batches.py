"""Vocabulary and batches, and what a GPU needs of them: few shapes, one graph, no waits."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from counting import Counting
from torch._dynamo.testing import CompileCounter

from search_spaces.errors import UsageError
from workers.batches import BatchShare
from workers.device.precision import planned_for
from workers.workloads.translation import Translation
from workers.workloads.translation.batches import Examples, plan_batches
from workers.workloads.translation.data import ParallelCorpus
from workers.workloads.translation.vocabulary import BOS, EOS, PAD, cached, train


def test_text_comes_back(vocabulary, corpus):
    assert vocabulary.decode(vocabulary.encode(corpus.targets[:50])) == list(corpus.targets[:50])
    assert vocabulary.decode([[BOS, *vocabulary.encode(["Der Hund."])[0], EOS, PAD]]) == [
        "Der Hund."
    ]


def test_sizes_that_do_not_fit(corpus):
    assert len(train(["a b", "b a"], 5000)) < 5000  # so many as there are
    with pytest.raises(UsageError, match="vocabulary_size 10 does not fit"):
        train(corpus.sources, 10)


def _cached(texts, folder):
    return cached(texts, 60, folder).proto


def test_processes_may_train_the_same_vocabulary_at_once(tmp_path, corpus):
    texts, cache = list(corpus.sources[:300]), tmp_path / "cache"
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        first, second = pool.map(_cached, [texts] * 2, [cache] * 2)
    assert first == second
    (path,) = cache.iterdir()
    written = path.stat().st_mtime_ns
    assert _cached(texts, cache) == first
    assert path.stat().st_mtime_ns == written
    path.write_bytes(b"damaged")
    assert _cached(texts, cache) == path.read_bytes() == first


@pytest.mark.parametrize("batch_tokens", [64, 1024])
def test_batches_are_full_and_hold_little_padding(examples, batch_tokens):
    plans = plan_batches(examples, batch_tokens, seed=0, epoch=0)
    batches = [examples.batch(rows) for rows in plans]
    sides = torch.cat([b[side].flatten() for b in batches for side in ("source", "labels")])
    assert (sides == PAD).float().mean() <= 0.08
    filled = [batch["labels"].numel() / batch_tokens for batch in batches]
    assert max(filled) <= 1
    assert np.mean(filled) > 0.75
    assert min(map(len, plans)) > 3 or batch_tokens < 100


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


DATA = {"name": "builtin", "train": 300, "valid": 10}
PARAMS = {"batch_tokens": 512, "width": 16, "num_layers": 1, "num_heads": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def workload() -> Translation:
    return made()


def made(**params) -> Translation:
    return Translation({**PARAMS, **params}, DATA, {"vocabulary_size": 250})


def gradients(loss_of, model, batch):
    model.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def by_logits(workload):
    # As on a GPU, which computes no loss in chunks.
    return lambda model, batch: workload.criterion(model(*workload.inputs(batch)), batch)


def test_padding_to_a_bucket_changes_neither_loss_nor_gradients(workload):
    model, loss_of = workload.build_model().train(), by_logits(workload)
    for batch in list(workload.train_batches(0))[:3]:
        few = {name: ids[:5] for name, ids in batch.items()}
        padded = workload.bucketed(few)
        assert padded["source"].shape[0] == 6
        assert workload.weight(padded) == workload.weight(few)
        expected = gradients(loss_of, model, few)
        torch.testing.assert_close(
            gradients(loss_of, model, padded), expected, rtol=1e-4, atol=1e-4
        )


def test_no_sentence_is_longer_than_the_model_allows(workload):
    limited = made(max_length=40)
    longest = max(limited.bucketed(b)["source"].shape[1] for b in limited.train_batches(0))
    assert longest <= 40
    assert max(workload.bucketed(b)["source"].shape[1] for b in workload.train_batches(0)) > 40


def test_a_batch_is_compiled_in_one_piece(workload):
    torch._dynamo.reset()
    plain, model = (workload.build_model().train() for _ in range(2))
    counter = CompileCounter()
    model.compile(backend=counter, dynamic=False)
    batches = list(map(workload.bucketed, workload.train_batches(0)))[:4]
    for batch in batches:
        expected, found = (gradients(by_logits(workload), m, batch) for m in (plain, model))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    shapes = {(batch["source"].shape, batch["labels"].shape) for batch in batches}
    assert counter.frame_count == len(shapes)
    with torch.no_grad():  # validation wants the logits of unpadded positions
        found = [m.eval()(*workload.inputs(batches[0])) for m in (plain, model)]
    torch.testing.assert_close(*found)
    torch._dynamo.reset()


@pytest.mark.parametrize("named", [{}, {"chunked_loss": True}, {"compile_scope": "layers"}])
def test_the_loss_of_a_part_waits_for_nothing(named):
    workload = made(**named)
    model = workload.build_model()
    share = BatchShare.of(workload, next(workload.train_batches(0)), accumulation=2)
    for part in share.parts:
        expected = gradients(workload.loss, model, dict(part))
        with planned_for("cuda"), Counting() as counting:
            found = gradients(workload.loss, model, part)
        assert counting.calls["mm"] + counting.calls["addmm"] > 0
        assert counting.waits == 0, counting.calls
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
