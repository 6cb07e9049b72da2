"""Compiled for a GPU, batches have few shapes, and a batch is one graph."""

from __future__ import annotations

import pytest
import torch

from workers.workloads.translation import Translation

DATA = {"name": "builtin", "train": 300, "valid": 10}
PARAMS = {"batch_tokens": 512, "width": 16, "num_layers": 1, "num_heads": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def workload() -> Translation:
    return Translation(PARAMS, DATA, {"vocabulary_size": 250})


def gradients(workload, model, batch):
    model.zero_grad()
    output = model(*workload.inputs(batch))  # as on a GPU, which computes no loss in chunks
    loss = workload.criterion(output, batch)
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def shapes(batch):
    return tuple(batch["source"].shape) + tuple(batch["labels"].shape)


def test_padding_to_a_bucket_changes_neither_loss_nor_gradients(workload):
    model = workload.build_model().train()
    for batch in list(workload.train_batches(0))[:3]:
        padded = workload.bucketed({name: ids[:5] for name, ids in batch.items()})
        few = {name: ids[:5] for name, ids in batch.items()}
        assert padded["source"].shape[0] == 6
        assert workload.weight(padded) == workload.weight(few)
        loss, grads = gradients(workload, model, few)
        same, others = gradients(workload, model, padded)
        assert torch.isfinite(same)
        torch.testing.assert_close(same, loss)
        torch.testing.assert_close(others, grads, rtol=1e-4, atol=1e-4)


def test_no_sentence_is_longer_than_the_model_allows(workload):
    limited = Translation({**PARAMS, "max_length": 40}, DATA, {"vocabulary_size": 250})
    longest = max(limited.bucketed(b)["source"].shape[1] for b in limited.train_batches(0))
    assert longest <= 40
    assert max(workload.bucketed(b)["source"].shape[1] for b in workload.train_batches(0)) > 40


def test_a_batch_is_compiled_in_one_piece(workload):
    graphs = []

    def count(module, inputs):
        graphs.append(module)
        return module

    torch._dynamo.reset()
    plain = workload.build_model().train()
    model = workload.build_model().train()
    model.compile(backend=count, dynamic=False)
    batches = list(map(workload.bucketed, workload.train_batches(0)))[:4]
    for batch in batches:
        loss, grads = gradients(workload, plain, batch)
        same, others = gradients(workload, model, batch)
        torch.testing.assert_close(same, loss)
        torch.testing.assert_close(others, grads, rtol=1e-4, atol=1e-4)
    assert len(graphs) == len(set(map(shapes, batches)))
    plain.eval()
    model.eval()
    with torch.no_grad():  # validation wants the logits of unpadded positions
        torch.testing.assert_close(*(m(*workload.inputs(batches[0])) for m in (plain, model)))
    torch._dynamo.reset()
