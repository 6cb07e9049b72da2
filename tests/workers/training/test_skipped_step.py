"""An update whose gradients are not finite leaves everything as if it had not been there."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pytest
import torch
from toy import Toy

from workers.context import Context
from workers.device.precision import Precision
from workers.parallel import STRATEGIES
from workers.parallel.mesh import Mesh
from workers.ranks import connect, disconnect
from workers.training import optimizers as step_module
from workers.training.optimizers import ClippedStep, build_optimizer
from workers.training.setup import build_model

CPU = torch.device("cpu")
UPDATES = 4
OVERFLOWS = (0, 1, UPDATES - 1)
MORE = "AUTOML_TEST_ALL" in os.environ
SHARDED = [{"parallelism": "fsdp"}]
if MORE:
    SHARDED += [{"parallelism": "ddp"}, {"parallelism": "tensor"}, {"parallelism": "pipeline"}]


def weights(values: dict[str, Any], rank: int, ranks: int, bad: int, left_out: bool) -> Any:
    """The weights of rank 0 after four updates, of which one overflows or is left out."""
    workload = Toy({"num_layers": 2 if MORE else 1, "width": 16, **values}, {}, {}, seed=3)
    kind = STRATEGIES.get(values.get("parallelism", "single"))
    strategy = kind(Mesh(rank, ranks, **kind.degrees(ranks, values)), workload, CPU, values)
    strategy.wrap(build_model(workload, values, strategy.build_device, 3))
    parameters = strategy.parameters()
    optimizer = build_optimizer(parameters, values)
    precision = Precision(values["precision"], CPU)
    precision.scaler.load_state_dict({**precision.scaler.state_dict(), "scale": 1024.0})
    step = ClippedStep(strategy, optimizer, precision, 1.0)
    for update in range(UPDATES):
        if left_out and update == bad:
            continue
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        generator = torch.Generator().manual_seed(update)
        for name, parameter in parameters.items():
            whole = torch.randn(parameter.shape, generator=generator) * float(precision.scale)
            if update == bad:
                whole.view(-1)[-1] = float("inf" if update else "nan")
            parameter.grad = strategy.scatter(whole, parameter, name)
        assert bool(step()) == (update != bad)
    return {name: tensor.tolist() for name, tensor in strategy.state()[""].items()}


def differing(cases: list[dict[str, Any]], rank: int = 0, ranks: int = 1) -> list[str]:
    """The cases in which the weights are not those of a run that left the update out."""
    found = []
    for values, bad in itertools.product(cases, OVERFLOWS):
        step_module.reading_waits = lambda device: False
        expected = weights(values, rank, ranks, bad, left_out=True)
        for late in (False, True):
            step_module.reading_waits = lambda device, late=late: late
            if weights(values, rank, ranks, bad, left_out=False) != expected:
                found.append(f"{values}, update {bad}, {'late' if late else 'direct'}")
    return found


def cases(optimizers: tuple[str, ...], **fixed: Any) -> list[dict[str, Any]]:
    both = itertools.product(optimizers, ("fp32", "bf16", "fp16") if MORE else ("fp32", "fp16"))
    return [{"optimizer": name, "precision": precision, **fixed} for name, precision in both]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_an_overflow_leaves_no_trace(monkeypatch, optimizer):
    monkeypatch.setattr(step_module, "reading_waits", step_module.reading_waits)
    assert not differing(cases((optimizer,)))


def sharded(context: Context) -> None:
    connect(context.rank, 2, context.rendezvous, CPU)
    names = ("adamw", "adam", "sgd") if MORE else ("adamw",)
    found = [differing(cases(names, **how), context.rank, 2) for how in SHARDED]
    if context.rank == 0:
        (context.folder / "found.json").write_text(json.dumps(found))
    disconnect()


def test_an_overflow_leaves_no_trace_in_shared_state(runner):
    runner.objective = sharded
    outcome = runner(ranks=2)
    assert outcome.failure is None, outcome.message
    assert json.loads((runner.folder / "found.json").read_text()) == [[] for _ in SHARDED]
