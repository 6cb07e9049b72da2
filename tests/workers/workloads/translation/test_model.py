"""Attention layouts and kernels, masks, checkpoints, the loss, dropout, pipeline stages."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from workers.workloads.translation import attention_layouts
from workers.workloads.translation.loss import cross_entropy, linear_cross_entropy
from workers.workloads.translation.model import Dropout
from workers.workloads.translation.parallel_plan import cut, plan
from workers.workloads.translation.vocabulary import PAD

LAYOUTS = ("interleaved", "separate", "packed")
KERNELS = ("sdpa", "math", "fused")


@pytest.fixture
def batch(examples):
    batch = examples.batch(torch.arange(12).numpy())
    assert (batch["source"] == PAD).any()
    assert (batch["labels"] == PAD).any()
    return batch


def with_weights_of(model, other):
    """Load the checkpoint of `other` into `model`, through the canonical layout."""
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
    logits, gradients = canonical_gradients(reference, batch)
    for layout, kernel in itertools.product(LAYOUTS, KERNELS):
        model = with_weights_of(build(seed=2, layout=layout, kernel=kernel), reference)
        other_logits, other_gradients = canonical_gradients(model, batch)
        torch.testing.assert_close(other_logits, logits, atol=1e-5, rtol=1e-5)
        assert other_gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(other_gradients[name], gradient, atol=1e-5, rtol=1e-5)


def test_a_checkpoint_round_trip_through_all_layouts_is_bit_identical(build):
    first = build(layout="interleaved")
    state, layout = first.state_dict(), "interleaved"
    for following in ("packed", "separate", "interleaved"):
        state = attention_layouts.native(
            attention_layouts.canonical(state, layout, 8), following, 8
        )
        assert state.keys() == build(layout=following).state_dict().keys()
        layout = following
    for name, tensor in first.state_dict().items():
        assert torch.equal(state[name], tensor), name


def test_weights_are_a_function_of_the_seed_whatever_the_layout(build):
    states = [
        attention_layouts.canonical(build(layout=layout, noise=False).state_dict(), layout, 8)
        for layout in LAYOUTS
    ]
    other = attention_layouts.canonical(build(seed=3, noise=False).state_dict(), "interleaved", 8)
    for name, tensor in states[0].items():
        assert torch.equal(tensor, states[1][name])
        assert torch.equal(tensor, states[2][name])
    assert not torch.equal(
        other["encoder.layers.0.attention.key.weight"],
        states[0]["encoder.layers.0.attention.key.weight"],
    )


@pytest.mark.parametrize(("layout", "kernel"), itertools.product(LAYOUTS, KERNELS))
def test_padding_changes_nothing(build, batch, layout, kernel):
    model = build(layout=layout, kernel=kernel)
    together = model(batch["source"], batch["shifted"])
    alone = []
    for source, target in zip(batch["source"], batch["shifted"], strict=True):
        alone.append(model(source[source != PAD][None], target[target != PAD][None]))
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
    hidden, weight = (
        torch.randn(rows, 16, requires_grad=True),
        torch.randn(11, 16, requires_grad=True),
    )
    labels = torch.arange(rows) % 11
    ours = linear_cross_entropy(hidden, weight, labels, smoothing)
    found = torch.autograd.grad(ours * 3, (hidden, weight))
    theirs = functional.cross_entropy(
        hidden @ weight.t(), labels, reduction="sum", label_smoothing=smoothing
    )
    torch.testing.assert_close(ours, theirs)
    for gradient, expected in zip(
        found, torch.autograd.grad(theirs * 3, (hidden, weight)), strict=True
    ):
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-5)


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
    names = {name for stage in stages for name, _ in stage.named_parameters()}
    assert names == {name for name, _ in model.named_parameters()}


def test_the_plan_names_modules_of_the_model(build):
    model = build()
    found = plan(model.architecture)
    for name in (*found.layers, *(name.replace("*", "1") for name in found.tensor)):
        model.get_submodule(name)
    for layout in LAYOUTS:
        model = build(layout=layout)
        for name in plan(model.architecture).tensor:
            model.get_submodule(name.replace("*", "1"))
