"""GPUs that are locked, by several sweeps at once."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from automl.dispatch.gpus import GpuLocks, holders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def test_gpus_are_exclusive_and_those_in_use_are_passed_over(folder: Path) -> None:
    one, two, three = (GpuLocks(name, folder) for name in ("one", "two", "three"))
    visible = ["GPU-a", "GPU-b", "GPU-c"]
    used = {"GPU-a": "GPU-a by process 7"}
    assert one.take(1, visible, used) == ["GPU-b"]
    assert two.take(3, visible, used, least=3) == [], "all that it needs or none"
    who = f"sweep 'one', process {os.getpid()}, and GPU-a by process 7"
    assert two.waits_for == f"waits for 2 GPUs held by {who}"
    assert three.take(3, visible, used) == ["GPU-c"]
    assert {one.sweep: one.gpus for one in holders(folder)} == {
        "one": ("GPU-b",),
        "three": ("GPU-c",),
    }
    with closing(one), closing(three):
        pass
    assert two.take(3, visible, {}, least=3) == visible
    assert two.waits_for == ""
    assert folder.stat().st_mode & 0o777 == 0o700
