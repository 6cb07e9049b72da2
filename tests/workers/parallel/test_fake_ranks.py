"""A rank of many, in one process: the group pretends that the others answer.

What other ranks would send stays as it is in memory, so numbers mean nothing, but shapes, parts and
memory are those of a rank of so many. An embedding server needs RPC, which nobody pretends:
tests/workers/parallel/test_strategies.py trains it, and all others, on real ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.pipelining import PipelineStage
from torch.testing._internal.distributed import fake_pg  # noqa: F401 (makes the backend known)
from toy import Toy

from workers.device.peak_memory import nbytes
from workers.device.precision import Precision
from workers.memory import estimate
from workers.parallel import STRATEGIES
from workers.parallel.base import Strategy
from workers.parallel.mesh import Mesh
from workers.ranks import connect, disconnect
from workers.training.optimizers import build_optimizer, step
from workers.training.setup import build_model

CPU = torch.device("cpu")
RANKS = (2, 8, 64) if "AUTOML_TEST_ALL" in os.environ else (2, 8)
SIZES = {"width": 128, "vocabulary": 256, "num_heads": 64, "rows": 64, "num_layers": 1}
# Of each: which share of the parameters a rank holds, and which share of the rows it computes.
PARTS = {
    "ddp": lambda ranks: (1, ranks),
    "fsdp": lambda ranks: (ranks, ranks),
    "hsdp": lambda ranks: (2, ranks),
    "tensor": lambda ranks: (ranks, 1),
    "data_tensor": lambda ranks: (2, ranks // 2),
}


@pytest.fixture(autouse=True)
def others(monkeypatch):
    """The stages of a pipeline agree that they know all shapes."""
    agreed = torch.ones(1, dtype=torch.int32)
    monkeypatch.setattr(
        PipelineStage, "_warmup_backward_result", lambda self, received_result=None: agreed
    )


@contextmanager
def last_rank(
    folder: Path, ranks: int, values: dict[str, Any], **sizes: int
) -> Iterator[tuple[Strategy, Toy]]:
    kind = STRATEGIES.get(values["parallelism"])
    workload = Toy({**SIZES, **sizes, **values}, {}, {}, seed=0)
    connect(ranks - 1, ranks, f"file://{folder / 'ranks'}", CPU, "fake")
    try:
        mesh = Mesh(ranks - 1, ranks, **kind.degrees(ranks, values))
        strategy = kind(mesh, workload, CPU, values)
        strategy.wrap(build_model(workload, values, CPU, 0))
        if values["parallelism"] == "ddp":  # a pretended sum has no result that DDP could take
            strategy.model.register_comm_hook(None, _own_gradients)
        yield strategy, workload
    finally:
        disconnect()


def _own_gradients(state, bucket):
    found: Any = torch.futures.Future()
    found.set_result(bucket.buffer())
    return found


def shapes_of(workload: Toy) -> dict[str, torch.Size]:
    return {name: p.shape for name, p in workload.build_model().named_parameters()}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("ranks", RANKS)
def test_the_last_rank_holds_its_part(tmp_path, name, ranks):
    if ranks < STRATEGIES.get(name).needs.min_ranks:
        return
    values = {"parallelism": name}
    with last_rank(tmp_path, ranks, values) as (strategy, workload):
        whole = sum(p.nbytes for p in workload.build_model().parameters())
        parameters = strategy.parameters()
        optimizer = build_optimizer(parameters, values)
        share = strategy.share_of(next(workload.train_batches(0)))
        rows = len(share.parts[0]["tokens"])
        for _ in range(2):
            optimizer.zero_grad()
            assert strategy.gradients(share, Precision("fp32", CPU)).ndim == 0
            assert strategy.grad_norm().ndim == 0
            step(optimizer)
        held = sum(map(nbytes, parameters.values()))
        moments = moment_bytes(optimizer)
        gathered = {n: strategy.gather(p.detach(), n).shape for n, p in parameters.items()}
    parts, shares = PARTS[name](ranks)
    assert rows == 64 // shares
    assert gathered == shapes_of(workload)
    assert held == pytest.approx(whole / parts, rel=0.1)
    assert moments == 2 * held


def moment_bytes(optimizer: Any) -> int:
    return sum(
        nbytes(value)
        for entry in optimizer.state.values()
        for key, value in entry.items()
        if key != "step"
    )


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved1f1b"])
@pytest.mark.parametrize("name", ["pipeline", "data_pipeline"])
@pytest.mark.parametrize("ranks", RANKS)
def test_the_last_rank_holds_its_stages(tmp_path, name, schedule, ranks):
    if ranks < STRATEGIES.get(name).needs.min_ranks:
        return
    each = 1 if schedule == "1f1b" else 2
    degree = ranks if name == "pipeline" else 2
    values = {"parallelism": name, "schedule": schedule, "num_microbatches": 2}
    sizes = {"width": 16, "num_heads": 2, "num_layers": degree * each}
    with last_rank(tmp_path, ranks, values, **sizes) as (strategy, workload):
        share = strategy.share_of(next(workload.train_batches(0)))
        rows = len(share.parts[0]["tokens"])
        for _ in range(2):
            assert strategy.gradients(share, Precision("fp32", CPU)).ndim == 0
            assert strategy.grad_norm().ndim == 0
        names = set(strategy.parameters())
        shapes = {n: p.shape for n, p in strategy.parameters().items()}
        graded = {n for n, p in strategy.parameters().items() if p.grad is not None}
    whole = shapes_of(workload)
    indices = {"1f1b": [degree - 1], "interleaved1f1b": [degree - 1, 2 * degree - 1]}
    layers = [f"layers.{index}." for index in indices[schedule]]
    mine = {n for n in whole if n.startswith(tuple(layers))}
    mine |= {"norm.weight", "norm.bias", "head.weight"}
    assert rows == 64 // (ranks // degree)
    assert names == graded == mine
    assert shapes == {n: whole[n] for n in mine}


# By what the estimate may differ from MemTracker's peak of two updates.
NEAR = {
    "ddp": (0.97, 1.03),
    "tensor": (0.97, 1.05),
    "data_tensor": (0.97, 1.05),
    "fsdp": (0.9, 1.5),
    "hsdp": (0.9, 1.5),
}


@pytest.mark.parametrize("name", NEAR)
def test_estimated_memory_is_that_of_mem_tracker(tmp_path, name):
    values = {"parallelism": name}
    sizes = {"width": 64, "vocabulary": 500, "num_heads": 8, "rows": 32, "num_layers": 2}
    with last_rank(tmp_path, 8, values, **sizes) as (strategy, workload):
        optimizer = build_optimizer(strategy.parameters(), values)
        batches = workload.train_batches(0)
        share = strategy.share_of(max(batches, key=lambda batch: batch["tokens"].numel()))
        tracker = MemTracker()
        tracker.track_external(strategy.model, optimizer)
        with tracker:
            for _ in range(2):
                tracker.reset_mod_stats()
                optimizer.zero_grad()
                strategy.gradients(share, Precision("fp32", CPU))
                step(optimizer)
        measured = tracker.get_tracker_snapshot("peak")[CPU]["Total"]
    ratio = estimate(workload, 8, "cuda").peak_bytes / measured
    assert NEAR[name][0] < ratio < NEAR[name][1], ratio
