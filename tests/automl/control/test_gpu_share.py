"""A sweep locks GPUs before its workers start, and is not to blame for others on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec

from automl.control.controller import conduct
from automl.core import Resources
from automl.dispatch._make import make_dispatcher, starting
from automl.dispatch.gpus import GpuLocks, holders, shared_gpus
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.workflows.doctor import examine
from tests.automl.control.shared_machine import RealDispatcher
from tests.automl.dispatch.nvidia_smi import FakeSmi

pytestmark = pytest.mark.usefixtures("lease_folder")
VARIABLE = "CUDA_VISIBLE_DEVICES"
HOLD = """
import time
from automl.dispatch.gpus import GpuLocks, SharedGpu
locks = GpuLocks("killed")
assert locks.take(2, [SharedGpu("GPU-aa"), SharedGpu("GPU-bb")]) == ["GPU-aa", "GPU-bb"]
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSmi:
    return FakeSmi(tmp_path / "bin", monkeypatch, "GPU-aa", "GPU-bb")


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    yield 1.0, {"loss": 1.0}


def run(ledger: Ledger, gpus: float, workers: int | None) -> Any:
    """The sweep, and what a worker that starts with it sees."""
    spec = make_spec(trials=3, workers=workers, resources=Resources(gpus=gpus))
    spec = replace(spec, name=ledger.create_sweep(spec))
    seen: list[str | None] = []

    def start() -> RealDispatcher:
        seen.append(os.environ.get(VARIABLE))
        return RealDispatcher(replay, workers or 1)

    snapshot = conduct(spec, ledger, RealDispatcher, start)
    return snapshot, seen


@pytest.mark.parametrize(
    ("gpus", "workers", "seen"),
    [
        (1.0, 1, "GPU-aa"),
        (1.0, 2, "GPU-aa,GPU-bb"),
        (0.5, 2, "GPU-aa"),
        (1.0, None, "GPU-aa,GPU-bb"),
        (0.0, 2, None),
    ],
)
def test_its_workers_see_the_gpus_that_it_locks(
    ledger: Ledger, smi: FakeSmi, gpus: float, workers: int | None, seen: str | None
) -> None:
    snapshot, found = run(ledger, gpus, workers)
    assert (snapshot.state, found) == ("finished", [seen])
    assert VARIABLE not in os.environ
    assert holders() == []


def test_gpus_of_others_are_passed_over_and_that_is_said(
    ledger: Ledger, smi: FakeSmi, lease_folder: Path
) -> None:
    smi.use({"GPU-aa": os.getppid()})
    _, seen = run(ledger, 1.0, 1)
    assert seen == ["GPU-bb"]
    assert lease_folder.stat().st_mode & 0o777 == 0o700
    (sweep,) = ledger.sweeps()
    notes = [getattr(event, "message", "") for event in ledger.events(sweep.name)]
    assert any(f"GPU-aa by process {os.getppid()}" in note for note in notes)


def test_gpus_that_others_hold_are_refused_until_a_killed_sweep_frees_them(
    ledger: Ledger, smi: FakeSmi, tmp_path: Path
) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match=f"held by sweep 'killed', process {process.pid}"):
        run(ledger, 1.0, 2)
    (holder,) = examine(str(tmp_path))["holders"]
    assert (holder["sweep"], holder["gpus"]) == ("killed", ("GPU-aa", "GPU-bb"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    snapshot, seen = run(ledger, 1.0, 2)
    assert (snapshot.state, seen) == ("finished", ["GPU-aa,GPU-bb"])


def test_more_than_there_are_is_refused(ledger: Ledger, smi: FakeSmi) -> None:
    with pytest.raises(UsageError, match=r"3 workers of 1 GPUs need 3 GPUs.* may use 2 \(GPU-aa"):
        run(ledger, 1.0, 3)


def test_workers_with_gpus_start_when_these_are_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = make_spec(trials=1, workers=2, resources=Resources(gpus=1))
    monkeypatch.setenv(VARIABLE, "")
    with starting("local", spec, None, None) as start, pytest.raises(UsageError, match="GPU"):
        start()
    monkeypatch.setenv(VARIABLE, "GPU-bb")
    dispatcher = make_dispatcher("inline", spec, replay, None)
    assert vars(dispatcher)["_gpus"] == ["GPU-bb"]
    dispatcher.close()


def test_two_sweeps_never_hold_the_same_gpu(smi: FakeSmi) -> None:
    one, two = GpuLocks("one"), GpuLocks("two")
    assert one.take(1, shared_gpus()) == ["GPU-aa"]
    assert two.take(2, shared_gpus()) == ["GPU-bb"]
    one.close()
    two.close()
