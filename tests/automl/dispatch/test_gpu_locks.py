"""GPUs that are locked, by several sweeps at once."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from automl.dispatch.gpus import GpuLocks, SharedGpu, holders
from automl.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def test_gpus_are_exclusive_and_those_in_use_are_passed_over(folder: Path) -> None:
    one, two, three = (GpuLocks(name, folder) for name in ("one", "two", "three"))
    free = [SharedGpu("GPU-a"), SharedGpu("GPU-b"), SharedGpu("GPU-c")]
    gpus = [SharedGpu("GPU-a", ("process 7",)), *free[1:]]
    assert one.take(1, gpus) == ["GPU-b"]
    who = f"held by sweep 'one', process {os.getpid()}, and GPU-a by process 7"
    with pytest.raises(UsageError, match=who):
        two.take(3, gpus, least=3)
    assert three.take(3, gpus) == ["GPU-c"]
    assert {one.sweep: one.gpus for one in holders(folder)} == {
        "one": ("GPU-b",),
        "three": ("GPU-c",),
    }
    with closing(one), closing(three):
        pass
    assert two.take(3, free, least=3) == ["GPU-a", "GPU-b", "GPU-c"]
    assert folder.stat().st_mode & 0o777 == 0o700
