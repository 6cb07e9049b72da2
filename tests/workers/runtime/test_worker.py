"""A warm worker's environment."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workers.device.gpu import multiply
from workers.runtime import worker as worker_module
from workers.runtime.worker import Worker

NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@pytest.mark.parametrize("given", [None, *NAMES])
def test_gpu_memory_comes_in_segments_that_grow_unless_the_user_says_otherwise(monkeypatch, given):
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    if given:
        environment[given] = "max_split_size_mb:64"
    monkeypatch.setattr(os, "environ", environment)
    Worker(None, None, 1, lambda assignment, rank: nullcontext())
    found = {name: environment[name] for name in NAMES if name in environment}
    expected = {given: "max_split_size_mb:64"}
    assert found == (expected if given else {NAMES[1]: "expandable_segments:True"})


def test_to_compile_is_not_to_hang(monkeypatch):
    """torch calls the backend while it compiles; the model runs without a step for longer."""
    worker = Worker(None, None, 1, lambda assignment, rank: nullcontext())
    monkeypatch.setattr(worker_module, "LOOK_SECONDS", -1.0)
    idle = {}

    def backend(graph, inputs):
        time.sleep(0.05)
        idle["compiles"] = in_thread(worker)
        return graph.forward

    def model(x):
        return x * 2

    torch.compile(model, backend=backend)(torch.ones(2))
    time.sleep(0.05)
    idle["runs"] = in_thread(worker)
    assert idle["compiles"] == 0.0
    assert idle["runs"] >= 0.1
    monkeypatch.setattr(worker_module, "MAX_COMPILE_SECONDS", 0.0)
    torch._dynamo.reset()
    torch.compile(model, backend=backend)(torch.ones(2))
    assert idle["compiles"] > 0.0, "not for ever"


def in_thread(worker: Worker) -> float:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(worker.take, 0.0).result()[1].idle_seconds


class Products(TorchDispatchMode):
    """Counts the products that torch computes."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.mm.default
        return func(*args, **(kwargs or {}))


def test_the_thread_of_backward_multiplies_before_a_trial_too():
    """Each thread that multiplies has a workspace of cuBLAS."""
    with Products() as products:
        multiply(torch, "cpu")
    assert products.count == 3  # one forward, and one for each factor's gradient
