"""Gangs of local processes whose ranks are killed or hang in the middle of training."""

from __future__ import annotations

import os
import signal
import time

import pytest
from toy import Toy

from workers.context import Context
from workers.protocol import Assignment, Ending, Limits
from workers.runtime.parent import News
from workers.runtime.processes import Gang


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


def faulty(context: Context):
    return Faulty(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)


def test_a_rank_killed_in_the_middle_of_training_ends_all(runner):
    begun = time.monotonic()
    settings = {"parallelism": "embedding_server", "max_updates": 1000, "evaluate_updates": 1}
    outcome = runner(faulty, ranks=2, **settings)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "crashed")
    assert outcome.message.startswith("rank 1: the worker (process ")
    assert outcome.message.endswith("was killed by signal 9 (SIGKILL)")
    assert runner.reports, "it had begun"
    for rank in range(2):
        with pytest.raises(ProcessLookupError):
            os.kill(int((runner.folder / f"pid-{rank}").read_text()), 0)
    assert time.monotonic() - begun < 60, "it waits for no time-out of torch's"


class Thorough(Toy):
    """Evaluates for longer than an attempt may stand still."""

    def evaluate(self, model, device):
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            metrics = super().evaluate(model, device)
            time.sleep(0.1)
        return metrics


def thorough(context: Context):
    return Thorough(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)


def test_ranks_wait_while_rank_0_evaluates_for_long(runner):
    """Sockeye's issue 995: what rank 0 does alone is no hang, and no time-out of the others."""
    limits = Limits(timeout_seconds=8.0)
    outcome = runner(thorough, ranks=2, parallelism="ddp", max_updates=2, limits=limits)
    assert (outcome.ending, outcome.failure) == (Ending.COMPLETED, None), outcome.message


class Silent:
    """A rank that is only told things; keeps the methods that were called."""

    def __init__(self) -> None:
        self.called = []

    def __getattr__(self, name):
        return lambda *_: self.called.append(name)


@pytest.mark.parametrize(("timeout", "hangs"), [(0.0, True), (1000.0, False)])
def test_an_attempt_hangs_when_no_rank_moves_but_not_while_one_is_starting(timeout, hangs):
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
