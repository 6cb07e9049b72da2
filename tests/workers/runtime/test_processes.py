"""The processes of trials: nothing crosses from one to the next, and every death is told."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from workers.protocol import Assignment, Cause, Limits, Outcome
from workers.runtime.gang import Gang
from workers.runtime.processes import Parent, RankProcess, objective_file, receive_all

pytestmark = pytest.mark.timeout(120)


class Slot:
    """One parent, and attempts one after the other."""

    def __init__(self, folder: Path, objective: Any, threads: int = 1) -> None:
        self.folder, self.trial, self.threads = folder, 0, threads
        self.parent = Parent("slot", objective_file(objective), None, threads, {})

    def begin(self, limits: Limits | None = None, **params: Any) -> tuple[Gang, RankProcess]:
        self.trial += 1
        folder = str(self.folder / str(self.trial))
        limits = limits or Limits()
        threads = self.threads
        one = Assignment("s", self.trial, 1, params, None, folder, limits=limits, threads=threads)
        rank = RankProcess(self.parent)
        return Gang(one, [rank]), rank

    def end(self, gang: Gang, rank: RankProcess) -> Outcome:
        while gang.outcome is None:
            for _, message in receive_all([self.parent], [rank], 0.05):
                gang.receive(0, message)
            gang.watch()
        while rank.status is None:
            receive_all([self.parent], [], 0.05)
        return gang.outcome

    def run(self, **params: Any) -> Outcome:
        return self.end(*self.begin(**params))

    def children(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.parent._process.pid).children()}

    def close(self) -> None:
        self.parent.close()


def change(what: str) -> None:
    """Do to the process what a trial must not leave to the next."""
    if what == "dtype":
        import torch

        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = True
    elif what == "environment":
        os.environ["LEFT"] = "1"
    elif what == "folder":
        os.chdir("/")
        os.umask(0o777)
    elif what == "signals":
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 1000.0)
    elif what == "threads":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left").start()
    elif what == "modules":
        import json

        json.dumps = None  # type: ignore[assignment]
        sys.modules["left"] = json
        sys.path.insert(0, "left")
    elif what == "files":
        for _ in range(20):
            os.open("/dev/zero", os.O_RDONLY)


def open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            yield str(link.readlink())


def state() -> dict[str, float]:
    """What a trial finds, as numbers."""
    import json

    found = {
        "environment": float("LEFT" in os.environ),
        "folder": float(Path.cwd() == Path("/")),
        "umask": float(os.umask(0o022) == 0o777),
        "signals": float(signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "threads": float(sum(thread.name == "left" for thread in threading.enumerate())),
        "modules": float("left" in sys.modules or json.dumps is None or "left" in sys.path),
        "files": float(sum(link == "/dev/zero" for link in open_files())),
    }
    if "torch" in sys.modules:
        import torch

        assert torch.get_default_dtype() is torch.float32
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    return found


def objective(trial: Any) -> dict[str, float]:
    import torch  # noqa: F401 (its settings are compared)

    found = state()
    change(trial.params["change"])
    return {"loss": 1.0, **found}


def test_nothing_crosses_from_a_trial_to_the_next(tmp_path: Path) -> None:
    slot = Slot(tmp_path, objective)
    try:
        slot.run(change="")  # the parent learns what is imported
        clean = slot.run(change="").metrics
        for what in ("dtype", "environment", "folder", "signals", "threads", "modules", "files"):
            changed = slot.run(change=what)
            assert changed.failure is None, changed.message
            after = slot.run(change="")
            assert after.metrics == clean, f"{what}: {after.message}"
    finally:
        slot.close()


def die(trial: Any) -> dict[str, float]:
    how = trial.params["how"]
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "memory":
        raise MemoryError
    elif how == "loop":
        ctypes.PyDLL(None).pause()  # C that keeps the lock of the interpreter: no thread runs
    return {"loss": 1.0}


@pytest.fixture(scope="module")
def dying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    slot = Slot(tmp_path_factory.mktemp("dying"), die)
    yield slot
    slot.close()


@pytest.mark.parametrize(
    ("how", "failure", "cause", "status"),
    [
        ("segfault", "crashed", Cause.SIGNALLED, -signal.SIGSEGV),
        ("exit", "crashed", Cause.EXITED, 3),
        ("kill", "crashed", Cause.KILLED, -signal.SIGKILL),
        ("memory", "out_of_memory", Cause.RAISED, None),
    ],
)
def test_a_death_is_data_and_the_slot_goes_on(
    dying: Slot, how: str, failure: str, cause: Cause, status: int | None
) -> None:
    outcome = dying.run(how=how)
    assert (outcome.failure, outcome.cause, outcome.exit_status) == (failure, cause, status)
    assert dying.run(how="").failure is None


def test_a_loop_in_c_is_ended_and_the_slot_goes_on(dying: Slot) -> None:
    gang, rank = dying.begin(how="loop")
    while rank.pid is None or not rank.heard:
        for _, message in receive_all([dying.parent], [rank], 0.05):
            gang.receive(0, message)
    time.sleep(0.5)
    gang.kill("timeout", "too long")
    assert dying.end(gang, rank).failure == "timeout"
    assert rank.status == -signal.SIGKILL
    assert dying.run(how="").failure is None
    assert len(dying.children()) <= 1, "one may be forked ahead"


def test_a_process_that_stays_silent_is_lost(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("workers.runtime.processes.SIGN_SECONDS", 0.5)
    slot = Slot(tmp_path, die)
    try:
        for _ in range(2):  # then the parent has imported all
            slot.run(how="")
        gang, rank = slot.begin(how="loop")
        while not slot.children() - {rank.pid} or rank.pid is None:
            receive_all([slot.parent], [], 0.05)
        (spare,) = slot.children() - {rank.pid}
        os.kill(spare, signal.SIGSTOP)  # so the next one says nothing
        gang.kill("timeout", "too long")
        silent, rank = slot.begin(how="")
        outcome = slot.end(silent, rank)
        assert outcome.cause is Cause.LOST
        assert outcome.message.endswith("gave no sign of life")
    finally:
        slot.close()


def test_a_parent_that_dies_is_replaced_and_its_attempt_is_lost(dying: Slot) -> None:
    gang, rank = dying.begin(how="loop")
    while rank.pid is None or not rank.heard:
        receive_all([dying.parent], [rank], 0.05)
    os.kill(dying.parent._process.pid, signal.SIGKILL)
    while gang.outcome is None:
        for _, message in receive_all([dying.parent], [rank], 0.05):
            gang.receive(0, message)
    assert gang.outcome.cause is Cause.LOST
    assert gang.outcome.worker_lost
    deadline = time.monotonic() + 10
    while psutil.pid_exists(rank.pid):
        assert time.monotonic() < deadline
    assert dying.run(how="").failure is None


def compute(trial: Any) -> dict[str, float]:
    import threadpoolctl

    np.ones((200, 200)) @ np.ones((200, 200))
    pools = threadpoolctl.threadpool_info()
    return {"loss": 1.0, "threads": float(min(one["num_threads"] for one in pools))}


def test_a_numpy_product_uses_all_cores_of_the_slot(tmp_path: Path) -> None:
    slot = Slot(tmp_path, compute, threads=2)
    try:
        for _ in range(3):
            outcome = slot.run()
            assert outcome.metrics == {"loss": 1.0, "threads": 2.0}, outcome.message
    finally:
        slot.close()


def test_the_parent_imports_what_a_trial_has_imported(tmp_path: Path) -> None:
    def importing(trial: Any) -> dict[str, float]:
        known = float("wave" in sys.modules)
        import wave  # noqa: F401

        return {"loss": 1.0, "known": known}

    slot = Slot(tmp_path, importing)
    try:
        assert [slot.run().metrics["known"] for _ in range(3)] == [0.0, 1.0, 1.0]
    finally:
        slot.close()


def test_cublas_knows_its_workspace_before_its_first_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(trial: Any) -> dict[str, float]:
        return {"loss": 1.0, "set": float(os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8")}

    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    slot = Slot(tmp_path, asking)
    try:
        assert slot.run().metrics["set"] == 1.0
    finally:
        slot.close()


class Threaded:
    """Starts a thread where it is unpickled, so that a fork would not be safe."""

    def __reduce__(self) -> Any:
        return _threaded, ()

    def __call__(self, trial: Any) -> dict[str, float]:
        alive = any(thread.name == "needed" for thread in threading.enumerate())
        return {"loss": 1.0, "alive": float(alive)}


def _threaded() -> Threaded:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="needed").start()
    return Threaded()


def test_a_target_with_threads_is_loaded_in_each_process_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slot = Slot(tmp_path, Threaded())
    try:
        for _ in range(2):
            outcome = slot.run()
            assert outcome.metrics == {"loss": 1.0, "alive": 1.0}, outcome.message
    finally:
        slot.close()
    assert [record.message for record in caplog.records] == [
        "each attempt imports anew in its process: what was imported has started 1 threads"
    ]


def test_arrays_of_an_objective_are_shared(tmp_path: Path) -> None:
    large = np.ones(100_000_000 // 8)

    def reading(trial: Any) -> dict[str, float]:
        before = psutil.Process().memory_full_info().uss
        total = float(large.sum())
        return {"loss": total, "own": float(psutil.Process().memory_full_info().uss - before)}

    slot = Slot(tmp_path, reading)
    try:
        for _ in range(2):
            assert slot.run().metrics["own"] < 10_000_000
    finally:
        slot.close()
