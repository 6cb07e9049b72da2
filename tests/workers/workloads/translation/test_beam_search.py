"""Greedy and beam search against plain recomputation, on a model with confident, varied output."""

from __future__ import annotations

import itertools

import pytest
import torch
from counting import Counting

from workers.workloads.translation.beam_search import (
    SearchOptions,
    translate,
)
from workers.workloads.translation.model import padding_mask
from workers.workloads.translation.vocabulary import BOS, EOS


@pytest.fixture
def sources(examples):
    ids, offsets = examples.sources.ids, examples.sources.offsets
    return [ids[offsets[i] : offsets[i + 1]].tolist() for i in range(9)]


@pytest.fixture
def sharp(build):
    """Random weights whose next tokens differ in probability and include EOS now and then."""

    def make(**settings):
        model = build(tied=False, **settings)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            model.projection.weight.normal_(std=0.4, generator=generator)
            model.projection.weight[EOS] *= 2
        return model

    return make


def scores_without_cache(model, source, hypothesis):
    """Log-probabilities (v,) of what follows a hypothesis, padding, unknown and BOS left out."""
    hidden = model.decoder(
        model.embedding(torch.tensor([[BOS, *hypothesis]])),
        model.encode(source, padding_mask(source)),
        padding_mask(source),
    )
    logits = model.score(hidden[:, -1])[0]
    logits[:EOS] = -torch.inf
    return logits.log_softmax(-1)


def plain_greedy(model, source, room):
    found = []
    for _ in range(room):
        token = int(scores_without_cache(model, source, found)[EOS:].argmax()) + EOS
        if token == EOS:
            break
        found.append(token)
    return found


@pytest.mark.parametrize(
    ("layout", "kernel"), itertools.product(("interleaved", "separate", "packed"), ("sdpa", "math"))
)
def test_cached_greedy_search_equals_plain_recomputation(sharp, sources, layout, kernel):
    model = sharp(layout=layout, kernel=kernel)
    search = SearchOptions(max_ratio=1.0, max_extra=3, batch=4)
    expected = [
        plain_greedy(model, torch.tensor([s]), search.max_length(len(s), 64)) for s in sources
    ]
    found = translate(model, sources, search)
    assert [ids[: len(e)] for ids, e in zip(found, expected, strict=True)] == expected
    assert len({len(ids) for ids in found}) > 1


def plain_beam(model, source, room, beam, alpha, base):
    """Keeps the `beam` best by normalised score; finished ones stay."""
    beams = [(0.0, [], False)]

    def value(hypothesis):
        score, ids, finished = hypothesis
        return score / ((base + len(ids) + finished) / (base + 1)) ** alpha

    for _ in range(room):
        candidates = [h for h in beams if h[2]]
        for score, ids, finished in beams:
            if not finished:
                logs = scores_without_cache(model, source, ids)
                likely = sorted(range(EOS + 1, len(logs)), key=lambda t: -logs[t])[:beam]
                candidates += [(score + float(logs[t]), [*ids, t], False) for t in likely]
                candidates.append((score + float(logs[EOS]), ids, True))
        beams = sorted(candidates, key=value, reverse=True)[:beam]
        if all(finished for *_, finished in beams):
            break
    return max([h for h in beams if h[2]] or beams, key=value)[1]


@pytest.mark.parametrize(("alpha", "base"), [(0.0, 5.0), (1.0, 5.0), (1.0, 0.0)])
def test_beam_search_equals_a_plain_one(sharp, sources, alpha, base):
    model = sharp()
    search = SearchOptions(
        beam=3, length_penalty=alpha, length_base=base, max_ratio=0.0, max_extra=8, batch=5
    )
    with torch.no_grad():
        expected = [plain_beam(model, torch.tensor([s]), 8, 3, alpha, base) for s in sources]
    assert translate(model, sources, search) == expected
    assert expected != translate(model, sources, SearchOptions(beam=1, max_ratio=0.0, max_extra=8))


def test_the_order_and_size_of_batches_do_not_matter(sharp, sources):
    model = sharp()
    one = translate(model, sources, SearchOptions(beam=4, batch=1, max_ratio=0.0, max_extra=12))
    many = translate(
        model, sources[::-1], SearchOptions(beam=4, batch=7, max_ratio=0.0, max_extra=12)
    )[::-1]
    assert one == many


@pytest.mark.parametrize("beam", [1, 4])
def test_a_gpu_is_asked_every_eight_tokens_and_finds_the_same(sharp, sources, beam, monkeypatch):
    search = SearchOptions(beam=beam)
    expected = translate(sharp(), sources, search)
    waits = {}
    for interval in (1, 8):
        monkeypatch.setattr(
            "workers.workloads.translation.beam_search.look_interval", lambda device, n=interval: n
        )
        with Counting() as counting:
            assert translate(sharp(), sources, search) == expected
        waits[interval] = counting.waits
    assert waits[8] < waits[1] / 4
