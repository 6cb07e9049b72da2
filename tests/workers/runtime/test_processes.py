"""The processes of trials: nothing crosses from one to the next, and every death is told."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from workers.protocol import Assignment, Cause, Limits, Outcome
from workers.runtime.parent import News, shorten
from workers.runtime.processes import Gang, Parent, RankProcess, objective_file, receive_all

pytestmark = pytest.mark.timeout(120)


class Slot:
    """One parent, and attempts one after the other."""

    def __init__(self, folder: Path, objective: Any, threads: int = 1) -> None:
        self.folder, self.trial, self.threads = folder, 0, threads
        self.parent = Parent("slot", objective_file(objective), None, threads, {})

    def begin(self, **params: Any) -> tuple[Gang, RankProcess]:
        self.trial += 1
        folder, threads = str(self.folder / str(self.trial)), self.threads
        one = Assignment("s", self.trial, 1, params, None, folder, threads=threads)
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

    def hang(self) -> tuple[Gang, RankProcess]:
        """An attempt whose process is in the middle of C code."""
        gang, rank = self.begin(how="loop")
        while rank.pid is None or not rank.heard:
            for _, message in receive_all([self.parent], [rank], 0.05):
                gang.receive(0, message)
        return gang, rank

    def children(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.parent._process.pid).children()}


@pytest.fixture
def slot_of(tmp_path: Path) -> Iterator[Callable[..., Slot]]:
    made: list[Slot] = []

    def make(objective: Any, threads: int = 1) -> Slot:
        made.append(Slot(tmp_path, objective, threads))
        return made[-1]

    yield make
    for slot in made:
        slot.parent.close()


def spoil() -> None:
    """Do to the process all that a trial must not leave to the next."""
    import json

    import torch

    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    os.environ["LEFT"] = "1"
    os.chdir("/")
    os.umask(0o777)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 1000.0)
    threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left").start()
    json.dumps = None  # type: ignore[assignment]
    sys.modules["left"] = json
    sys.path.insert(0, "left")
    for _ in range(20):
        os.open("/dev/zero", os.O_RDONLY)


def open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            yield str(link.readlink())


def looking(trial: Any) -> dict[str, float]:
    """What a trial finds, as numbers."""
    import json

    import torch

    found = {
        "dtype": float(torch.get_default_dtype() is torch.float64),
        "deterministic": float(torch.are_deterministic_algorithms_enabled()),
        "benchmark": float(torch.backends.cudnn.benchmark),
        "environment": float("LEFT" in os.environ),
        "folder": float(Path.cwd() == Path("/")),
        "umask": float(os.umask(0o022) == 0o777),
        "signals": float(signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "threads": float(sum(thread.name == "left" for thread in threading.enumerate())),
        "modules": float("left" in sys.modules or json.dumps is None or "left" in sys.path),
        "files": float(sum(link == "/dev/zero" for link in open_files())),
    }
    if trial.params["spoils"]:
        spoil()
    return found


def test_nothing_crosses_from_a_trial_to_the_next(slot_of: Callable[..., Slot]) -> None:
    slot = slot_of(looking)
    for spoils in (False, True, False):  # after the first the parent knows what is imported
        outcome = slot.run(spoils=spoils)
        assert outcome.failure is None, outcome.message
        assert set(outcome.metrics.values()) == {0.0}, outcome.metrics


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
    slot.parent.close()


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
    gang, rank = dying.hang()
    time.sleep(0.5)
    gang.kill("timeout", "too long")
    assert dying.end(gang, rank).failure == "timeout"
    assert rank.status == -signal.SIGKILL
    assert dying.run(how="").failure is None
    assert len(dying.children()) <= 1, "one may be forked ahead"


def test_a_process_that_stays_silent_is_lost(dying: Slot, monkeypatch: Any) -> None:
    for _ in range(2):  # then the parent has imported all
        dying.run(how="")
    gang, rank = dying.hang()
    while not (spares := dying.children() - {rank.pid}):
        time.sleep(0.05)
    os.kill(spares.pop(), signal.SIGSTOP)  # so the next one says nothing
    monkeypatch.setattr("workers.runtime.processes.SIGN_SECONDS", 0.5)
    gang.kill("timeout", "too long")
    outcome = dying.run(how="")
    assert outcome.cause is Cause.LOST
    assert outcome.message.endswith("gave no sign of life")


def test_a_parent_that_dies_is_replaced_and_its_attempt_is_lost(dying: Slot) -> None:
    gang, rank = dying.hang()
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


def test_a_trial_finds_what_is_loaded_and_all_cores_of_its_slot(
    slot_of: Callable[..., Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = np.ones(100_000_000 // 8)

    def finding(trial: Any) -> dict[str, float]:
        import threadpoolctl

        known = float("wave" in sys.modules)
        import wave  # noqa: F401

        before = psutil.Process().memory_full_info().uss
        total = float(large.sum())
        own = float(psutil.Process().memory_full_info().uss - before)
        np.ones((200, 200)) @ np.ones((200, 200))
        threads = min(one["num_threads"] for one in threadpoolctl.threadpool_info())
        cublas = float(os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8")
        return {"x": total, "known": known, "own": own, "threads": threads, "cublas": cublas}

    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    slot = slot_of(finding, threads=2)
    found = [slot.run().metrics for _ in range(3)]
    assert [one["known"] for one in found] == [0.0, 1.0, 1.0], "the parent imports it too"
    assert max(one["own"] for one in found) < 10_000_000, "arrays are shared"
    assert {one["threads"] for one in found} == {2.0}
    assert {one["cublas"] for one in found} == {1.0}, "before the first product"


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
    slot_of: Callable[..., Slot], caplog: pytest.LogCaptureFixture
) -> None:
    slot = slot_of(Threaded())
    for _ in range(2):
        outcome = slot.run()
        assert outcome.metrics == {"loss": 1.0, "alive": 1.0}, outcome.message
    assert [record.message for record in caplog.records] == [
        "each attempt imports anew in its process: what was imported has started 1 threads"
    ]


def test_a_long_log_is_cut_in_its_middle_and_that_is_said(tmp_path: Path) -> None:
    most = 40_000
    with (tmp_path / "log").open("a+") as file:
        file.write("a" * most + "b" * most)
        file.flush()
        shorten(file, most)
        file.write("c")
    head = "a" * (most // 2)
    assert (tmp_path / "log").read_text() == (
        head + "\n... the middle of this log is left out ...\n" + "b" * (most // 4) + "c"
    )


class Silent:
    """A rank that is only told things; keeps the methods that were called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.called.append(name)


@pytest.mark.parametrize(("timeout", "hangs"), [(0.0, True), (1000.0, False)])
def test_an_attempt_hangs_when_no_rank_moves_but_not_while_one_is_starting(
    timeout: float, hangs: bool
) -> None:
    ranks, limits = [Silent(), Silent()], Limits(timeout_seconds=timeout)
    gang = Gang(Assignment("s", 0, 1, {}, None, "", num_ranks=2, limits=limits), ranks, "of Ray")
    gang.receive(0, News([], 5000.0))  # left over from an earlier attempt
    time.sleep(0.01)
    assert gang.watch() == []
    assert ranks[0].called == ["run"], "rank 1 has given no sign of life"
    gang.receive(1, News([], 0.0))
    time.sleep(0.01)
    gang.watch()
    assert [rank.called for rank in ranks] == [["run", "dump"] if hangs else ["run"]] * 2
