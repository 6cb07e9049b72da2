"""The next trial of a warm worker gets another rank, and a mesh of the same shape."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.distributed import fake_pg  # noqa: F401 (makes the backend known)
from toy import Toy

from search_spaces.errors import UsageError
from workers.device.precision import Precision
from workers.parallel import STRATEGIES
from workers.parallel.mesh import Mesh
from workers.parallel.strategies import fsdp
from workers.ranks.process_group import connect, disconnect
from workers.training.setup import build_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("strategy", ["data_tensor", "hsdp", "tensor"])
def test_a_worker_takes_another_rank_of_the_same_mesh(tmp_path, monkeypatch, strategy):
    monkeypatch.setattr(fsdp, "from_rank_0", lambda whole: whole)  # nobody sends weights
    kind = STRATEGIES.get(strategy)
    values = {"parallelism": strategy}
    for turn, rank in enumerate((0, 2, 1)):
        connect(rank, 4, f"file://{tmp_path / str(turn)}", CPU, "fake")
        try:
            workload = Toy(values, {}, {}, seed=0)
            mesh = Mesh(rank, 4, **kind.degrees(4, values))
            model = build_model(workload, values, CPU, 0)
            found = kind(mesh, workload, CPU, values)
            found.wrap(model)
            share = found.share_of(next(workload.train_batches(0)))
            assert found.gradients(share, Precision("fp32", CPU)).ndim == 0
            assert found.grad_norm().ndim == 0
        finally:
            disconnect()


def test_a_pipeline_records_no_graphs(tmp_path):
    values = {"parallelism": "pipeline", "compile": "reduce-overhead"}
    kind = STRATEGIES.get("pipeline")
    workload = Toy(values, {}, {}, seed=0)
    strategy = kind(Mesh(0, 2, **kind.degrees(2, values)), workload, CPU, values)
    with pytest.raises(UsageError, match="cannot compute the microbatches of a pipeline"):
        strategy.wrap(workload.build_model())


@pytest.mark.parametrize("name", [name for name in STRATEGIES.names() if name != "single"])
def test_no_gpu_holds_the_whole_model_at_first(name):
    kind = STRATEGIES.get(name)
    mesh = Mesh(1, 4, **kind.degrees(4, {}))
    strategy = kind(mesh, Toy({}, {}, {}), torch.device("cuda", 0), {})
    assert (strategy.build_device.type == "cuda") == kind.replicated
