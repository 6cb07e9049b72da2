"""Greedy and beam search against plain recomputation, on a model with confident, varied output."""

from __future__ import annotations

import itertools

import pytest
import torch

from workers.workloads.translation.decoding import Search, beam_search, best_tokens, greedy, nbest, translate
from workers.workloads.translation.model import padding_mask
from workers.workloads.translation.vocabulary import BOS, EOS, PAD


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
    """Log-probabilities (v,) of what follows a hypothesis."""
    hidden = model.decoder(
        model.embedding(torch.tensor([[BOS, *hypothesis]])),
        model.encode(source, padding_mask(source)),
        padding_mask(source),
    )
    return model.score(hidden[:, -1]).log_softmax(-1)[0]


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
    search = Search(max_ratio=1.0, max_extra=3, batch=4)
    expected = [plain_greedy(model, torch.tensor([s]), search.max_length(len(s), 64)) for s in sources]
    found = translate(model, sources, search)
    assert [ids[: len(e)] for ids, e in zip(found, expected, strict=True)] == expected
    assert len({len(ids) for ids in found}) > 1


def test_a_beam_of_one_is_greedy(sharp, sources):
    model = sharp()
    longest = max(map(len, sources))
    source = torch.tensor([s + [PAD] * (longest - len(s)) for s in sources])
    with torch.no_grad():
        found = [ranked[0][1] for ranked in beam_search(model, source, 20, Search(beam=1))]
        assert found == greedy(model, source, 20, Search())


def plain_beam(model, source, room, beam, alpha):
    """Keeps the `beam` best by normalised score; finished ones stay."""
    beams = [(0.0, [], False)]

    def value(hypothesis):
        score, ids, finished = hypothesis
        return score / ((5 + len(ids) + finished) / 6) ** alpha

    for _ in range(room):
        candidates = [h for h in beams if h[2]]
        for score, ids, finished in beams:
            if not finished:
                logs = scores_without_cache(model, source, ids)
                candidates += [(score + float(logs[t]), [*ids, t], False) for t in range(EOS + 1, len(logs))]
                candidates.append((score + float(logs[EOS]), ids, True))
        beams = sorted(candidates, key=value, reverse=True)[:beam]
        if all(finished for *_, finished in beams):
            break
    return max([h for h in beams if h[2]] or beams, key=value)[1]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beam_search_equals_a_plain_one(sharp, sources, alpha):
    model = sharp()
    search = Search(beam=3, length_penalty=alpha, max_ratio=0.0, max_extra=8, batch=5)
    with torch.no_grad():
        expected = [plain_beam(model, torch.tensor([s]), 8, 3, alpha) for s in sources]
    assert translate(model, sources, search) == expected
    assert expected != translate(model, sources, Search(beam=1, max_ratio=0.0, max_extra=8))


def test_the_order_and_size_of_batches_do_not_matter(sharp, sources):
    model = sharp()
    one = translate(model, sources, Search(beam=4, batch=1, max_ratio=0.0, max_extra=12))
    many = translate(model, sources[::-1], Search(beam=4, batch=7, max_ratio=0.0, max_extra=12))[::-1]
    assert one == many


def test_several_translations_come_best_first(sharp, sources):
    model, search = sharp(), Search(beam=4, max_ratio=0.0, max_extra=8, batch=5)
    found = nbest(model, sources, search)
    assert [ranked[0][1] for ranked in found] == translate(model, sources, search)
    for ranked in found:
        scores = [score for score, _ in ranked]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(ids) for _, ids in ranked}) == len(ranked)
    assert max(map(len, found)) > 1


@pytest.mark.parametrize("width", [3, 64, 700, 1003])
def test_the_best_tokens_are_those_of_a_sort(width):
    logs = torch.randn(7, width, generator=torch.Generator().manual_seed(0))
    values, columns = best_tokens(logs, 5)
    expected = logs.topk(min(5, width))
    assert torch.equal(values, expected.values)
    assert torch.equal(columns, expected.indices)
