"""Sharding from the first moment on: what a rank of `fsdp` holds and sends."""

from __future__ import annotations

import json

import pytest
import torch
from counting import Counting
from toy import Toy

from search_spaces.hardware import Hardware
from workers.context import Context
from workers.parallel.strategies import fsdp
from workers.protocol import Ending
from workers.training.setup import build_model
from workers.workloads import WORKLOADS

SIZES = {"parallelism": "fsdp", "num_layers": 4, "width": 64, "num_heads": 4}


class Watched(Toy):
    """Notes the bytes that lie on the rank whenever a part of the model is sharded."""

    def run(self, context: Context):
        held = []
        shard = fsdp.fully_shard

        def watched(module, **settings):
            held.append(bytes_of(module))
            return shard(module, **settings)

        fsdp.fully_shard = watched
        try:
            return super().run(context)
        finally:
            fsdp.fully_shard = shard
            (context.folder / f"held-{context.rank}").write_text(json.dumps(held))

    def build_model(self):
        model = super().build_model()
        device = next(model.parameters()).device.type
        (self.folder / f"device-{self.rank}").write_text(device)
        return model


def bytes_of(module):
    """Of the tensors that are whole and have memory."""
    tensors = {id(p): p for p in module.parameters() if not hasattr(p, "placements")}
    return sum(p.nbytes for p in tensors.values() if not p.is_meta)


def watched(context: Context):
    workload = Watched(context.params, {}, {}, seed=context.seed)
    workload.folder, workload.rank = context.folder, context.rank
    return workload.run(context)


def test_no_rank_but_the_first_builds_the_model_in_memory(runner):
    runner.objective = watched
    outcome = runner(**SIZES, ranks=2, max_updates=1)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    devices = [(runner.folder / f"device-{rank}").read_text() for rank in (0, 1)]
    assert devices == ["cpu", "meta"]
    model = Toy(SIZES, {}, {}).build_model()
    layer = bytes_of(model.layers[0])
    held = json.loads((runner.folder / "held-1").read_text())
    assert held == [*[layer] * 4, bytes_of(model) - 4 * layer], "one layer at a time is whole"


class Wide(Toy):
    """Counts the operations of the first update's forward pass."""

    def loss(self, model, batch):
        if hasattr(self, "counting"):
            return super().loss(model, batch)
        self.counting = Counting()
        with self.counting:
            return super().loss(model, batch)


def wide(context: Context):
    workload = Wide(context.params, {}, {}, seed=context.seed)
    metrics = workload.run(context)
    shapes = [list(shape) for shape in workload.counting.narrowed]
    formats = [str(dtype) for dtype in workload.counting.gathered]
    (context.folder / f"counted-{context.rank}").write_text(json.dumps([shapes, formats]))
    return metrics


def test_half_precision_sends_half_and_keeps_no_second_copy_of_weights(runner):
    runner.objective = wide
    outcome = runner(**SIZES, precision="bf16", ranks=2, max_updates=1)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    shapes, formats = json.loads((runner.folder / "counted-1").read_text())
    assert formats == ["torch.bfloat16"]
    weights = {tuple(p.shape) for p in Toy(SIZES, {}, {}).build_model().parameters() if p.ndim > 1}
    assert not weights & {tuple(shape) for shape in shapes}


@pytest.mark.parametrize("name", ["translation", "image_classification"])
def test_every_model_can_be_built_without_memory(name):
    kind = WORKLOADS.get(name)
    hardware = Hardware(2, 2**33, backends=("gloo",))
    assert "fsdp" in kind.space(hardware).parameters["parallelism"].choices
    smallest = kind.smallest
    workload = kind({}, smallest.get("data", {}), smallest.get("fixed", {}))
    values = {**kind.defaults, **workload.fixed}
    model = build_model(workload, values, torch.device("meta"), 0)
    assert all(p.is_meta for p in model.parameters())


class Tabled(Toy):
    """Its model has a tensor that is no buffer."""

    def build_model(self):
        model = super().build_model()
        model.table = torch.zeros(3)
        return model


def test_a_model_with_other_tensors_is_built_in_memory_after_all():
    model = build_model(Tabled({}, {}, {}), {}, torch.device("meta"), 0)
    assert not next(model.parameters()).is_meta
    assert not model.table.is_meta
