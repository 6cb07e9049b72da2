"""Warm workers that train in one gang after the other, with other ranks and after faults."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from toy import Toy

from workers.context import Context
from workers.parallel import STRATEGIES
from workers.protocol import Assignment, Outcome, Report
from workers.runtime.gang import GPU_GRACE_SECONDS, GRACE_SECONDS, Gang
from workers.runtime.process_worker import News
from workers.runtime.processes import ObjectiveFile, WorkerProcess, receive_all

MORE = "AUTOML_TEST_ALL" in os.environ
RANKS = 4
MAX_SECONDS = 30.0  # from a fault to the outcome, on a machine that is busy with other tests
COMMON = {"max_updates": 4, "evaluate_updates": 1, "optimizer": "sgd", "learning_rate": 0.3}
OOM = "out_of_memory"
# What torch raises, by a name: the error, the kind of failure, and what the message must name.
FAULTS = {
    "context": (torch.AcceleratorError, "CUDA error: device-side assert triggered", "crashed"),
    "cublas": (
        RuntimeError,
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        "crashed",
    ),
    "allocator": (
        torch.OutOfMemoryError,
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1 GiB free",
        OOM,
    ),
    "driver": (torch.AcceleratorError, "CUDA error: out of memory", OOM),
    "handle": (RuntimeError, "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", OOM),
    "cudnn": (RuntimeError, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", OOM),
    "engine": (RuntimeError, "FIND was unable to find an engine to execute this computation", OOM),
    "host": (RuntimeError, "DefaultCPUAllocator: can't allocate memory: you tried 9 bytes", OOM),
    "aborted": (dist.DistBackendError, "NCCL communicator was aborted on rank 1.", "crashed"),
}
QUICK = (("context", True), ("driver", False), ("aborted", True))


class Failing(Toy):
    """One rank, or all, raise what torch would, at the third update."""

    def weight(self, batch: Any) -> float:
        self.calls = getattr(self, "calls", 0) + 1
        fault = self.params.get("fault")
        if fault and self.calls == 7 and self.rank in (1, self.params["other"]):
            (self.folder / f"failed-{self.rank}").write_text(str(time.time()))
            kind, text, _ = FAULTS[fault]
            raise kind(text)
        return super().weight(batch)

    def run(self, context: Context) -> Any:
        self.rank, self.folder = context.rank, context.folder
        if context.rank == 0 and context.params.get("late"):
            _tell_late()
        return super().run(context)


def _tell_late() -> None:
    """The first rank notices the end of another one only as a communicator that was aborted."""
    plain = dist.all_reduce

    def late(*given: Any, **more: Any) -> Any:
        try:
            return plain(*given, **more)
        except RuntimeError as error:
            raise dist.DistBackendError("NCCL communicator was aborted on rank 0.") from error

    dist.all_reduce = late


def failing(context: Context) -> Any:
    return Failing(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)


class Warm:
    """Workers that stay; one that a gang has spent is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trial = folder, 0
        self.file = ObjectiveFile(failing)
        self.workers = [self.new() for _ in range(RANKS + 1)]
        self.replaced = 0

    def new(self) -> WorkerProcess:
        return WorkerProcess("warm", self.file, None, 1, {})

    def gang(self, ranks: Sequence[int], params: dict[str, Any]) -> tuple[Gang, Sequence[int]]:
        self.trial += 1
        one = Assignment(
            "s", self.trial, 1, params, None, str(self.folder / str(self.trial)),
            num_ranks=len(ranks), seed=7,
        )  # fmt: skip
        return Gang(one, [self.workers[index] for index in ranks]), ranks

    def run(
        self, *wanted: tuple[Sequence[int], dict[str, Any]]
    ) -> list[tuple[Outcome, dict[int, float]]]:
        """Run attempts beside each other: workers in order of rank, and parameters."""
        gangs = [self.gang(*one) for one in wanted]
        losses: list[dict[int, float]] = [{} for _ in gangs]
        while any(gang.outcome is None for gang, _ in gangs):
            for index, message in receive_all(self.workers, 0.1):
                for (gang, ranks), found in zip(gangs, losses, strict=True):
                    if index in ranks and gang.outcome is None:
                        rank = list(ranks).index(index)
                        events = (
                            gang.receive(rank, message.events, message.heartbeat)
                            if isinstance(message, News)
                            else gang.lose(rank, "it died") if message is None else []
                        )  # fmt: skip
                        found |= {
                            event.step: event.metrics["train_loss"]
                            for event in events
                            if isinstance(event, Report) and "train_loss" in event.metrics
                        }
            for gang, _ in gangs:
                gang.watch()
        for gang, ranks in gangs:
            for rank in gang.spent:
                self.workers[ranks[rank]].kill()
                self.workers[ranks[rank]] = self.new()
                self.replaced += 1
        return [(gang.outcome, found) for (gang, _), found in zip(gangs, losses, strict=True)]  # type: ignore[misc]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.file.close()


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Iterator[Warm]:
    made = Warm(tmp_path_factory.mktemp("warm"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(warm: Warm) -> dict[int, float]:
    [(outcome, losses)] = warm.run(([4], COMMON))
    assert outcome.failure is None, outcome.message
    return losses


QUICK_STRATEGIES = ("data_tensor",)
STRATEGY_NAMES = [n for n in STRATEGIES.names() if n != "single"] if MORE else QUICK_STRATEGIES


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_ranks_change_places_beside_another_trial(warm, alone, name):
    params = {**COMMON, "parallelism": name}
    for order in ((0, 1, 2, 3), (2, 3, 0, 1)):
        (outcome, losses), (other, beside) = warm.run((order, params), ([4], COMMON))
        assert outcome.failure is None, f"{outcome.message}\n{outcome.details.get('traceback')}"
        assert other.failure is None, other.message
        assert losses == pytest.approx(alone, rel=1e-5)
        assert beside == alone


CASES = [(name, one) for name in FAULTS for one in (True, False)] if MORE else QUICK


@pytest.mark.parametrize(("fault", "one_rank"), CASES)
def test_a_fault_of_torch_has_a_cause_and_its_workers_go_on(warm, alone, fault, one_rank):
    _, text, failure = FAULTS[fault]
    params = {**COMMON, "parallelism": "ddp", "fault": fault, "other": 1 if one_rank else 0}
    [(outcome, _)] = warm.run(((0, 1), params))
    ended = time.time()
    assert outcome.failure == failure
    assert text[:60] in outcome.message
    folder = warm.folder / str(warm.trial)
    begun = min(float(path.read_text()) for path in folder.glob("failed-*"))
    assert ended - begun < MAX_SECONDS
    [(after, losses)] = warm.run(((1, 0), {**COMMON, "parallelism": "ddp"}))
    assert after.failure is None, after.message
    assert losses == pytest.approx(alone, rel=1e-5)


def test_an_aborted_communicator_is_not_told_in_place_of_its_cause(warm):
    params = {**COMMON, "parallelism": "fsdp", "fault": "driver", "other": 1, "late": True}
    [(outcome, _)] = warm.run(((0, 1), params))
    assert (outcome.failure, outcome.exception) == (OOM, "AcceleratorError")
    assert "CUDA error: out of memory" in outcome.message
    params |= {"fault": "context"}
    [(outcome, _)] = warm.run(((0, 1), params))
    assert "device-side assert" in outcome.message


class Silent:
    """A worker that never answers."""

    killed = False

    def run(self, *given: Any) -> None:
        pass

    def kill(self) -> None:
        self.killed = True


@pytest.mark.parametrize(("gpus", "grace"), [(0.0, GRACE_SECONDS), (1.0, GPU_GRACE_SECONDS)])
def test_ranks_on_gpus_have_longer_to_follow(monkeypatch, tmp_path, gpus, grace):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one = Assignment("s", 0, 1, {}, None, str(tmp_path), num_ranks=2, gpus=gpus)
    workers = [Silent(), Silent()]
    gang = Gang(one, workers)
    assert gang.lose(1, "it is gone") == []
    now[0] += grace - 0.1
    assert gang.watch() == []
    now[0] += 0.2
    [outcome] = gang.watch()
    assert outcome.message == "rank 1: it is gone"
    assert workers[0].killed
