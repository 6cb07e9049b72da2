"""A warm worker's environment."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

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
