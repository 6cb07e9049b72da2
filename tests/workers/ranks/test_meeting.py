"""Ranks of a user's function meet through the variables of torchrun, and end together."""

from __future__ import annotations

import ast
import os
import signal
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from sources import ROOT
from toy import Toy

from workers.context import Context
from workers.protocol import Ending, Limits, StopRequest
from workers.ranks import Meeting


def test_ranks_of_several_machines_meet_at_the_store_of_the_first():
    first = Meeting(0, 1, "", own_gpus=True)
    port = first.variables()["MASTER_PORT"]
    second = Meeting(1, 2, f"tcp://127.0.0.1:{port}", own_gpus=True)
    variables = second.variables()
    assert variables["MASTER_PORT"] == port
    assert (variables["RANK"], variables["WORLD_SIZE"]) == ("1", "2")
    assert (variables["LOCAL_RANK"], variables["LOCAL_WORLD_SIZE"]) == ("0", "1"), "its own GPUs"


def report_until_told(context: Context) -> dict[str, float]:
    """A script under torchrun; the ranks report at their own pace.

    Rank 1 sees the request to stop much earlier.
    """
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    step = 0
    while context.report(step=(step := step + 1), loss=1.0):
        time.sleep(0.03 * (1 - context.rank))
    (context.folder / f"rank-{context.rank}").write_text(str(step))
    context.barrier()
    local = [int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")]
    return {"total": float(total), "local": local[0], "local_size": local[1], "size": local[2]}


def test_ranks_make_a_process_group_and_all_stop_after_the_same_report(runner):
    outcome = runner(
        report_until_told,
        ranks=2,
        torchrun=True,
        stop_requested=lambda: StopRequest.PAUSE if len(runner.reports) > 4 else None,
    )
    assert (outcome.ending, outcome.failure) == (Ending.PAUSED, None), outcome.message
    assert outcome.metrics == {"total": 3.0, "local": 0, "local_size": 2, "size": 2}
    last = [(runner.folder / f"rank-{rank}").read_text() for rank in range(2)]
    assert last[0] == last[1] == str(len(runner.reports))


def fail_or_report_more(context: Context) -> dict[str, float]:
    if context.params["fails"]:
        if context.rank == 1:
            raise ValueError("of rank 1")
        context.barrier()
    for step in range(1, 4 + context.rank):
        context.report(step=step, loss=1.0)
    return {"loss": 1.0}


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        (True, "ValueError: of rank 1"),
        (
            False,
            "RuntimeError: rank 0 has ended after 3 reports: every rank must report each step",
        ),
    ],
)
def test_the_failure_of_a_rank_is_the_trials_with_the_first_cause(runner, fails, message):
    outcome = runner(fail_or_report_more, ranks=2, torchrun=True, fails=fails)
    assert (outcome.ending, outcome.message) == (Ending.FAILED, message)


class Faulty(Toy):
    """Rank 1 kills itself some updates after the start."""

    def weight(self, batch):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 9 and self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().weight(batch)

    def run(self, context):
        self.rank = context.rank
        (context.folder / f"pid-{context.rank}").write_text(str(os.getpid()))
        return super().run(context)


def trained(kind: type[Toy], context: Context):
    return kind(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)


def test_a_rank_killed_in_the_middle_of_training_ends_all(runner):
    begun = time.monotonic()
    settings = {"parallelism": "embedding_server", "max_updates": 1000, "evaluate_updates": 1}
    outcome = runner(partial(trained, Faulty), ranks=2, **settings)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "crashed")
    assert outcome.message.startswith("rank 1: the worker (process ")
    assert outcome.message.endswith("was killed by signal 9 (SIGKILL)")
    assert runner.reports, "it had begun"
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int((runner.folder / f"pid-{rank}").read_text()), 0)
    assert time.monotonic() - begun < 60, "it waits for no time-out of torch's"


class Thorough(Toy):
    # Evaluates for longer than an attempt may stand still.
    def evaluate(self, model, device):
        for _ in range(80):
            metrics = super().evaluate(model, device)
            time.sleep(0.1)
        return metrics


def test_ranks_wait_while_rank_0_evaluates_for_long(runner):
    outcome = runner(
        partial(trained, Thorough),
        ranks=2,
        parallelism="ddp",
        max_updates=2,
        limits=Limits(timeout_seconds=6.0),
    )
    assert (outcome.ending, outcome.failure) == (Ending.COMPLETED, None), outcome.message


def test_the_variables_are_set_for_the_length_of_the_attempt(runner, monkeypatch):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    seen = {}
    runner.objective = lambda trial: seen.update(os.environ) or trial.barrier()
    assert runner(torchrun=True).failure is None
    assert (seen["RANK"], seen["WORLD_SIZE"], seen["LOCAL_RANK"]) == ("0", "1", "0")
    assert seen["MASTER_PORT"].isdecimal()
    assert os.environ["RANK"] == "7"
    assert "MASTER_PORT" not in os.environ
    seen.clear()
    assert runner().failure is None
    assert "MASTER_PORT" not in seen, "one rank is no gang unless the sweep has ranks"


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
