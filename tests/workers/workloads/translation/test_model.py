"""The model (layouts and kernels of attention, masks, checkpoints, loss, stages), and decoding."""

from __future__ import annotations

import itertools

import pytest
import torch
from counting import Counting
from torch.nn import functional

from workers.workloads.translation import attention_layouts
from workers.workloads.translation.beam_search import SearchOptions, translate
from workers.workloads.translation.loss import cross_entropy, linear_cross_entropy
from workers.workloads.translation.model import Dropout
from workers.workloads.translation.parallel_plan import cut, plan
from workers.workloads.translation.vocabulary import BOS, EOS, PAD

LAYOUTS = ("interleaved", "separate", "packed")
KERNELS = ("sdpa", "math", "fused")


@pytest.fixture
def batch(examples):
    batch = examples.batch(torch.arange(12).numpy())
    assert (batch["source"] == PAD).any()
    assert (batch["labels"] == PAD).any()
    return batch


def with_weights_of(model, other):
    canonical = attention_layouts.canonical(
        other.state_dict(), other.architecture.layout, other.architecture.head_dim
    )
    model.load_state_dict(
        attention_layouts.native(canonical, model.architecture.layout, model.architecture.head_dim)
    )
    return model


def canonical_gradients(model, batch):
    model.zero_grad()
    logits = model(batch["source"], batch["shifted"])
    functional.cross_entropy(logits, batch["labels"][batch["labels"] != PAD]).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return logits.detach(), attention_layouts.canonical(
        gradients, model.architecture.layout, model.architecture.head_dim
    )


def test_every_layout_and_kernel_computes_the_same_function(build, batch):
    reference = build(layout="separate", kernel="math")
    expected = canonical_gradients(reference, batch)
    for layout, kernel in itertools.product(LAYOUTS, KERNELS):
        model = with_weights_of(build(seed=2, layout=layout, kernel=kernel), reference)
        found = canonical_gradients(model, batch)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_checkpoint_round_trip_through_all_layouts_is_bit_identical(build):
    first = build(layout="interleaved").state_dict()
    state = first
    for layout, following in itertools.pairwise(("interleaved", *LAYOUTS[::-1])):
        state = attention_layouts.native(
            attention_layouts.canonical(state, layout, 8), following, 8
        )
        assert state.keys() == build(layout=following).state_dict().keys()
    torch.testing.assert_close(state, dict(first), rtol=0, atol=0)


def test_weights_are_a_function_of_the_seed_whatever_the_layout(build):
    states = [
        attention_layouts.canonical(
            build(seed=seed, layout=layout, noise=False).state_dict(), layout, 8
        )
        for seed, layout in [(1, "interleaved"), (1, "separate"), (1, "packed"), (3, "packed")]
    ]
    for other in states[1:3]:
        torch.testing.assert_close(other, states[0], rtol=0, atol=0)
    name = "encoder.layers.0.attention.key.weight"
    assert not torch.equal(states[3][name], states[0][name])


@pytest.mark.parametrize(("layout", "kernel"), itertools.product(LAYOUTS, KERNELS))
def test_padding_changes_nothing(build, batch, layout, kernel):
    model = build(layout=layout, kernel=kernel)
    together = model(batch["source"], batch["shifted"])
    alone = [
        model(source[source != PAD][None], target[target != PAD][None])
        for source, target in zip(batch["source"], batch["shifted"], strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_position_sees_a_later_one(build, batch, kernel):
    model = build(kernel=kernel)
    source, target = batch["source"][:1], batch["shifted"][:1].clone()
    before = model(source, target)
    target[0, 5] = 9
    after = model(source, target)
    assert torch.equal(before[:5], after[:5])
    assert not torch.allclose(before[5], after[5])


@pytest.mark.parametrize("rows", [3, 600])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_without_logits_is_the_loss(rows, smoothing):
    inputs = [torch.randn(n, 16, requires_grad=True) for n in (rows, 11)]
    labels = torch.arange(rows) % 11
    ours = linear_cross_entropy(*inputs, labels, smoothing)
    theirs = functional.cross_entropy(
        inputs[0] @ inputs[1].t(), labels, reduction="sum", label_smoothing=smoothing
    )
    torch.testing.assert_close(ours, theirs)
    found, expected = (torch.autograd.grad(loss * 3, inputs) for loss in (ours, theirs))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_a_model_that_is_given_labels_returns_their_loss(build, batch):
    for tied in (True, False):
        model = build(tied=tied)
        labels = batch["labels"][batch["labels"] != PAD]
        loss = model(batch["source"], batch["shifted"], labels, 0.1)
        torch.testing.assert_close(
            loss, cross_entropy(model(batch["source"], batch["shifted"]), labels, 0.1)
        )


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    torch.manual_seed(0)
    dropout, x = Dropout(0.3), torch.ones(1000, 201)
    y = dropout(x)
    assert abs(float((y == 0).float().mean()) - 0.3) < 0.01
    assert abs(float(y.mean()) - 1) < 0.01
    assert set(y.unique().tolist()) == {0.0, y.max().item()}
    torch.manual_seed(0)
    torch.testing.assert_close(dropout.add(x, x), y + 1)
    dropout.eval()
    assert torch.equal(dropout(x), x)


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_stages_compute_what_the_whole_computes(build, batch, num_stages, tied):
    model = build(tied=tied)
    stages = cut(model, num_stages)
    hidden = ()
    for stage in stages:
        result = stage(*hidden, source=batch["source"], shifted=batch["shifted"])
        hidden = result if isinstance(result, tuple) else (result,)
    real = batch["labels"] != PAD
    torch.testing.assert_close(hidden[0][real], model(batch["source"], batch["shifted"]))
    names = (name for stage in stages for name, _ in stage.named_parameters())
    assert set(names) == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_plan_names_modules_of_the_model(build, layout):
    model = build(layout=layout)
    found = plan(model.architecture)
    for name in (*found.layers, *found.tensor):
        model.get_submodule(name.replace("*", "1"))


# Greedy and beam search against plain recomputation, on a model with confident, varied output.


@pytest.fixture
def sources(examples):
    ids, offsets = examples.sources.ids, examples.sources.offsets
    return [ids[offsets[i] : offsets[i + 1]].tolist() for i in range(9)]


@pytest.fixture
def sharp(build):
    # Random weights whose next tokens differ in probability and include EOS now and then.

    def make(**settings):
        model = build(tied=False, **settings)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            model.projection.weight.normal_(std=0.4, generator=generator)
            model.projection.weight[EOS] *= 2
        return model

    return make


def scores_without_cache(model, source, hypothesis):
    # Log-probabilities (v,) of what follows a hypothesis, padding, unknown and BOS left out.
    logits = model(source, torch.tensor([[BOS, *hypothesis]]))[-1]
    logits[:EOS] = -torch.inf
    return logits.log_softmax(-1)


@pytest.mark.parametrize(
    ("layout", "kernel"), itertools.product(("interleaved", "separate", "packed"), ("sdpa", "math"))
)
def test_cached_greedy_search_equals_plain_recomputation(sharp, sources, layout, kernel):
    model = sharp(layout=layout, kernel=kernel)
    search = SearchOptions(max_ratio=1.0, max_extra=3, batch=4)
    with torch.no_grad():
        expected = [
            plain_beam(model, torch.tensor([s]), search.max_length(len(s), 64), 1, 0.0, 5.0)
            for s in sources
        ]
    found = translate(model, sources, search)
    assert [ids[: len(e)] for ids, e in zip(found, expected, strict=True)] == expected
    assert len({len(ids) for ids in found}) > 1


def plain_beam(model, source, room, beam, alpha, base):
    # Keeps the `beam` best by normalised score; finished ones stay.
    beams = [(0.0, [], False)]

    def value(hypothesis):
        score, ids, finished = hypothesis
        return score / ((base + len(ids) + finished) / (base + 1)) ** alpha

    for _ in range(room):
        candidates = [h for h in beams if h[2]]
        for score, ids, finished in beams:
            if not finished:
                logs = scores_without_cache(model, source, ids)
                likely = (logs[EOS + 1 :].topk(beam).indices + EOS + 1).tolist()
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
