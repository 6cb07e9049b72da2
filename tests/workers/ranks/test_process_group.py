"""Ranks on GPUs notice that another has died; shown here on CPUs, with the same connections."""

from __future__ import annotations

import ast
import os
import signal
import threading

import torch
import torch.distributed as dist
from sources import ROOT

from workers.context import Context
from workers.ranks import process_group

COLLECTIVE = {
    "all_reduce",
    "all_gather_object",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather_object",
    "recv",
    "send",
}


def watching(context: Context) -> None:
    """Rank 1 leaves in order, fails, and dies; rank 0 notes what it notices."""
    process_group.connect(context.rank, 2, context.rendezvous, torch.device("cpu"))
    for ending in ("order", "failure", "death"):
        lost = threading.Event()
        watch = process_group.PeerWatch(lost.set)
        dist.barrier()
        if context.rank == 0:
            noticed = lost.wait(1.0 if ending == "order" else 30.0)
            (context.folder / ending).write_text(str(noticed))
        elif ending == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            watch.leave(failed=ending == "failure")


def test_a_rank_notices_that_another_has_failed_or_died(runner):
    runner.objective = watching
    runner(ranks=2)
    noticed = {path.name: path.read_text() for path in runner.folder.iterdir() if path.is_file()}
    assert noticed == {"order": "False", "failure": "True", "death": "True"}


class Backend:
    """Records the calls of a group of GPUs."""

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda: self.calls.append(name.strip("_"))


class Group:
    def __init__(self, backend=None):
        self.backend = backend

    def _get_backend(self, device):
        if self.backend is None:
            raise RuntimeError(f"no backend for {device}")
        return self.backend


def test_all_groups_of_gpus_are_aborted_as_one(monkeypatch):
    calls: list[str] = []
    backend = Backend(calls)
    world = dist.distributed_c10d._world
    groups = {Group(backend): "0", Group(): "1", Group(backend): "2"}
    monkeypatch.setattr(type(world), "pg_names", property(lambda self: groups))
    process_group.abort_gpu_groups()
    assert calls == ["group_start", "abort", "abort", "group_end"]


def test_the_flight_recorder_writes_to_the_trial_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "17")
    found = process_group.flight_recorder("/trial/logs/nccl-")
    assert found["TORCH_FR_BUFFER_SIZE"] == "17"
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert found["TORCH_FR_DUMP_TEMP_FILE"] == "/trial/logs/nccl-"
    assert process_group.WAIT_FOR_GPUS.total_seconds() <= 900


def test_a_rank_that_fails_aborts_its_own_calls_before_it_tells_the_others(monkeypatch):
    """To destroy a group waits for its calls, which never end once the others have aborted."""
    calls: list[str] = []
    watch = type("Watch", (), {"leave": lambda self, *, failed: calls.append("leave")})()
    monkeypatch.setattr(process_group, "abort_gpu_groups", lambda: calls.append("abort"))
    for failed in (True, False):
        monkeypatch.setattr(process_group, "_watches", [watch])
        process_group.disconnect(failed=failed)
    assert calls == ["abort", "leave", "leave"]


def test_workloads_and_the_trainer_name_the_group_of_each_collective_call():
    """The default group is NCCL's, whose calls end after ten minutes: ranks wait at gloo."""
    unnamed = []
    for file in [
        *(ROOT / "workers/workloads").rglob("*.py"),
        *(ROOT / "workers/training").glob("*.py"),
    ]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_dist = isinstance(node.func.value, ast.Name) and node.func.value.id == "dist"
                named = any(keyword.arg == "group" for keyword in node.keywords)
                if of_dist and node.func.attr in COLLECTIVE and not named:
                    unnamed.append(f"{file.name}:{node.lineno}")
    assert not unnamed
