"""The estimate for a user's own model is close to the memory that its training takes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from workers.context import Context
from workers.device.peak_memory import allocate_by
from workers.protocol import Assignment
from workers.run import run


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))


def convolutions() -> nn.Module:
    layers = [nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 32 * 32, 10))


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)


CASES: dict[str, tuple[Callable[[], nn.Module], Any, Any]] = {
    "mlp": (mlp, torch.zeros(256, 1024), torch.optim.Adam),
    "convolutions": (convolutions, (torch.zeros(32, 16, 32, 32),), torch.optim.Adam),
    "attention": (
        attention,
        {"src": torch.zeros(16, 128, 512)},
        torch.optim.SGD,
    ),
}


def loss_of(output: Any) -> torch.Tensor:
    first = output[0] if isinstance(output, tuple) else output
    return first.square().mean()


def train(trial: Context) -> dict[str, float]:
    build, batch, optimizer = CASES[trial.params["case"]]
    model = build()
    updates = optimizer(model.parameters())
    for _ in range(2):
        updates.zero_grad()
        parts = batch.values() if isinstance(batch, dict) else batch
        loss_of(model(batch) if isinstance(batch, torch.Tensor) else model(*parts)).backward()
        updates.step()
    return {}


def measured_peak(assignment: Assignment) -> int | None:
    """Called in a process of its own: what other tests hold and free must not count."""
    allocate_by(1 << 17, 1 << 18)  # freed memory goes back, so that the peak is what is in use
    for _ in range(2):  # the first loads the kernels
        outcome = run(Context(assignment), train)
        assert outcome.failure is None, outcome.message
    return outcome.peak_memory_bytes


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_close_to_the_measured_peak(tmp_path, case):
    assignment = Assignment("s", 0, 1, {"case": case}, None, str(tmp_path))
    trial = Context(assignment)
    build, batch, optimizer = CASES[case]
    estimates = [
        trial.estimate_memory(model, batch, loss=loss_of, optimizer=optimizer)
        for model in (build, build())
    ]
    assert estimates[0] == pytest.approx(estimates[1], rel=0.01)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(measured_peak, assignment).result()
    assert estimates[0] == pytest.approx(peak, rel=0.35)


def test_a_model_of_any_size_is_estimated_without_its_memory(tmp_path):
    trial = Context(Assignment("s", 0, 1, {}, None, str(tmp_path), gpus=1), device="cuda:0")
    batch = torch.zeros(8, 200_000)
    found = trial.estimate_memory(
        lambda: nn.Linear(200_000, 200_000), batch, optimizer=torch.optim.SGD
    )
    assert found == pytest.approx(2 * 4 * 200_000**2, rel=0.1), "weights and gradients"
    with pytest.raises(RuntimeError):
        trial.estimate_memory(lambda: nn.Linear(200_000, 3), torch.zeros(8, 7))
