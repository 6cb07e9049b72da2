"""Gangs of local processes whose ranks are killed or hang in the middle of training."""

from __future__ import annotations

import os
import signal
import time

import pytest
from toy import Toy

from workers.context import Context
from workers.protocol import Ending, Limits
from workers.runtime.gang import HangDetector


class Faulty(Toy):
    """Rank 1 kills itself or stops some updates after the start."""

    def weight(self, batch):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 9 and self.rank == 1:
            os.kill(
                os.getpid(), signal.SIGKILL if self.option("fault") == "kill" else signal.SIGSTOP
            )
        return super().weight(batch)

    def run(self, context):
        self.rank = context.rank
        (context.folder / f"pid-{context.rank}").write_text(str(os.getpid()))
        return super().run(context)


def faulty(context: Context):
    return Faulty(context.params, {}, context.assignment.fixed, seed=context.seed).run(context)


@pytest.mark.parametrize("strategy", ["ddp", "embedding_server"])
def test_a_rank_killed_in_the_middle_of_training_ends_all(runner, strategy):
    runner.objective = faulty
    begun = time.monotonic()
    outcome = runner(
        ranks=2, parallelism=strategy, fault="kill", max_updates=1000, evaluate_updates=1
    )
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "crashed")
    assert outcome.message.startswith("rank 1: the worker (process ")
    assert outcome.message.endswith("was killed by signal 9 (SIGKILL)")
    assert runner.reports, "it had begun"
    assert_gone(runner, ranks=2)
    assert time.monotonic() - begun < 60, "it waits for no time-out of torch's"


def test_a_rank_that_hangs_ends_all(runner):
    runner.objective = faulty
    outcome = runner(
        ranks=2,
        parallelism="ddp",
        fault="stop",
        max_updates=1000,
        limits=Limits(timeout_seconds=10.0),
    )
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "timeout")
    assert outcome.message.startswith("no step or report for ")
    assert_gone(runner, ranks=2)
    log = (runner.folder / "logs" / "attempt-1-rank-0.log").read_text()
    assert "the attempt hangs" in log


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
    runner.objective = thorough
    outcome = runner(ranks=2, parallelism="ddp", max_updates=2, limits=Limits(timeout_seconds=8.0))
    assert (outcome.ending, outcome.failure) == (Ending.COMPLETED, None), outcome.message


def assert_gone(runner, ranks):
    for file in (runner.folder / f"pid-{rank}" for rank in range(ranks)):
        if file.exists():  # else a slow machine had not yet begun
            with pytest.raises(ProcessLookupError):
                os.kill(int(file.read_text()), 0)


def test_an_attempt_hangs_when_no_rank_moves():
    detector = HangDetector(1000.0)
    detector.record(0, 5000.0, 3)  # left over from an earlier attempt
    assert not detector.hangs
    silent = HangDetector(0.0)
    time.sleep(0.01)
    assert silent.hangs
    silent.record(1, 0.0, 7)
    silent.record(0, 0.0, 6)
    time.sleep(0.01)
    assert silent.hangs
    assert "rank 0 stopped before the others" in silent.message()


def test_a_worker_that_is_still_starting_does_not_hang():
    detector = HangDetector(0.0, awaited=range(2))
    detector.record(0, 0.0, 0)
    time.sleep(0.01)
    assert not detector.hangs
    detector.record(1, 0.0, 0)
    time.sleep(0.01)
    assert detector.hangs
