"""Which GPUs there are, and who uses them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automl.dispatch.gpus import SharedGpu, shared_gpus
from tests.automl.dispatch.nvidia_smi import FakeSmi


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSmi:
    return FakeSmi(tmp_path / "bin", monkeypatch, "GPU-aa", "GPU-bb", "GPU-cc")


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, ["GPU-aa", "GPU-bb", "GPU-cc"]),
        ("2, 0", ["GPU-cc", "GPU-aa"]),
        ("GPU-bb", ["GPU-bb"]),
        ("GPU-c,1", ["GPU-cc", "GPU-bb"]),
        ("1,-1,0", ["GPU-bb"]),
        ("-1", []),
        ("1,7,0", ["GPU-bb"]),
        ("0,0", ["GPU-aa"]),
        ("MIG-1,MIG-2", ["MIG-1", "MIG-2"]),
        ("", []),
    ],
)
def test_only_what_this_process_may_use_is_found(
    smi: FakeSmi, monkeypatch: pytest.MonkeyPatch, visible: str | None, found: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.uuid for gpu in shared_gpus()] == found


def test_processes_of_others_are_named_and_our_own_are_not(smi: FakeSmi) -> None:
    smi.use({"GPU-aa": os.getpid(), "GPU-bb": os.getppid(), "GPU-cc": 2**22 + 1})
    ours, theirs, gone = shared_gpus()
    assert ours == SharedGpu("GPU-aa")
    assert theirs.users[0].startswith(f"process {os.getppid()} (")
    assert theirs.users[0].endswith("with 5120 MiB")
    assert gone.users == (f"process {2**22 + 1} with 5120 MiB",)


def test_a_machine_without_nvidia_smi_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shared_gpus() == []


def test_an_nvidia_smi_that_fails_finds_none(smi: FakeSmi, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n")
    assert shared_gpus() == []
