"""A rank of many, in one process: the group pretends that the others answer.

A pretended group makes no gradients for ddp, and sends nothing between stages or to a server:
tests/workers/parallel/test_strategies.py trains these on real ranks.
"""

from __future__ import annotations

import os
from itertools import product

import pytest
import torch
from torch.testing._internal.distributed import fake_pg  # noqa: F401 (makes the backend known)
from toy import Toy

from workers.device.peak_memory import nbytes
from workers.device.precision import Precision
from workers.parallel import STRATEGIES
from workers.parallel.mesh import Mesh
from workers.parallel.strategies import fsdp
from workers.ranks.process_group import connect, disconnect
from workers.training.optimizers import build_optimizer, step
from workers.training.setup import build_model

CPU = torch.device("cpu")
RANKS = (2, 8, 64) if "AUTOML_TEST_ALL" in os.environ else (2, 8)
SIZES = {"width": 128, "vocabulary": 256, "num_heads": 64, "rows": 64, "num_layers": 1}


@pytest.mark.parametrize(
    ("name", "ranks"), [*product(("fsdp", "tensor"), RANKS), *product(["hsdp"], RANKS[1:])]
)
def test_the_last_rank_holds_its_part(tmp_path, monkeypatch, name, ranks):
    monkeypatch.setattr(fsdp, "from_rank_0", lambda whole: whole)  # nobody sends weights
    values = {"parallelism": name, "optimizer_implementation": "foreach"}
    kind = STRATEGIES.get(name)
    workload = Toy({**SIZES, **values}, {}, {}, seed=0)
    shapes = {n: p.shape for n, p in workload.build_model().named_parameters()}
    whole = sum(p.nbytes for p in workload.build_model().parameters())
    connect(ranks - 1, ranks, f"file://{tmp_path / 'ranks'}", CPU, "fake")
    try:
        mesh = Mesh(ranks - 1, ranks, **kind.degrees(ranks, values))
        strategy = kind(mesh, workload, CPU, values)
        strategy.wrap(build_model(workload, values, CPU, 0))
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
        moments = sum(
            nbytes(value)
            for entry in optimizer.state.values()
            for key, value in entry.items()
            if key != "step"
        )
        gathered = {n: strategy.gather(p.detach(), n).shape for n, p in parameters.items()}
    finally:
        disconnect()
    assert rows == (64 if name == "tensor" else 64 // ranks)
    assert gathered == shapes
    assert held == pytest.approx(whole / (2 if name == "hsdp" else ranks), rel=0.1)
    assert moments == 2 * held
