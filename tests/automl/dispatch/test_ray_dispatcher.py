"""The Ray dispatcher alone: gangs, stop requests, kills and hangs on four slots."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from objectives import patient

import automl
from automl.core.resources import Resources
from automl.dispatch.base import Dispatcher
from workers.context import Context
from workers.protocol import (
    Assignment,
    Ending,
    Event,
    Limits,
    Outcome,
    Report,
    Started,
    StopRequest,
)

pytestmark = pytest.mark.timeout(300)


def behave(trial: Context) -> dict[str, float]:
    """What a trial does is one of its parameters."""
    kinds: dict[str, Callable[[Context], dict[str, float]]] = {
        "meet": meet,
        "patient": patient,
        "hang": hang,
    }
    return kinds[str(trial.params["do"])](trial)


def meet(trial: Context) -> dict[str, float]:
    """The ranks add something up with torch.distributed; one of them may die or raise."""
    import torch
    import torch.distributed as dist

    from workers.parallel.mesh import connect

    connect(trial.rank, trial.world_size, trial.rendezvous, torch.device("cpu"))
    (Path(trial.folder) / f"rank-{trial.rank}-{trial.assignment.attempt}").write_text(
        str(os.getpid())
    )
    total = torch.tensor(float(trial.rank))
    dist.all_reduce(total)
    if trial.rank == trial.params.get("dies"):
        os.kill(os.getpid(), 9)
    if trial.rank == trial.params.get("raises"):
        raise automl.TrialFailure("out_of_memory", "this rank is full")
    for step in range(int(trial.params.get("steps", 3))):
        if step == 2 and trial.rank == trial.params.get("hangs"):
            time.sleep(1000)
        dist.all_reduce(total)
        trial.report(step=step, loss=1.0)
        time.sleep(0.02)
    return {"loss": float(trial.rank)}


def hang(trial: Context) -> dict[str, float]:
    trial.report(step=0, loss=1.0)
    while True:
        time.sleep(0.05)


class Driver:
    """A dispatcher of four slots, and what came of one test's attempts."""

    def __init__(self, dispatcher: Dispatcher, folder: Path, first: int) -> None:
        self.dispatcher, self.folder, self.next = dispatcher, folder, first
        self.events: list[Event] = []

    def submit(self, do: str, ranks: int = 1, timeout: float | None = None, **params: Any) -> int:
        number, self.next = self.next, self.next + 1
        folder = str(self.folder / str(number))
        limits = Limits(timeout_seconds=timeout)
        self.dispatcher.submit(
            Assignment(
                "driver",
                number,
                1,
                {"do": do, "lr": 0.1, **params},
                None,
                folder,
                num_ranks=ranks,
                limits=limits,
            )
        )
        return number

    def until(self, condition: Callable[[], bool], seconds: float = 100.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.events
            self.dispatcher.poll(self.events.append, 0.1)

    def rest(self) -> None:
        """Until every slot is free: workers that died are replaced first."""
        self.until(lambda: self.dispatcher.free_slots == 4)

    def finish(self, number: int) -> Outcome:
        self.until(lambda: number in self.outcomes())
        return self.outcomes()[number]

    def outcomes(self) -> dict[int, Outcome]:
        found = [event for event in self.events if isinstance(event, Outcome)]
        assert len({outcome.trial for outcome in found}) == len(found), "an attempt has one outcome"
        return {outcome.trial: outcome for outcome in found}

    def reports(self, number: int) -> list[int]:
        return [
            event.step
            for event in self.events
            if isinstance(event, Report) and event.trial == number
        ]

    def pids(self, number: int, ranks: int) -> set[int]:
        return {
            int((self.folder / str(number) / f"rank-{rank}-1").read_text()) for rank in range(ranks)
        }


@pytest.fixture(scope="module")
def four_slots(shared_ray: None) -> Iterator[Dispatcher]:
    from automl.dispatch.ray.dispatcher import RayDispatcher

    dispatcher = RayDispatcher("driver", 4, Resources(), objective=behave)
    yield dispatcher
    dispatcher.close()


_numbers = itertools.count(step=1000)


@pytest.fixture
def driver(tmp_path: Path, four_slots: Dispatcher) -> Iterator[Driver]:
    made = Driver(four_slots, tmp_path, next(_numbers))
    yield made
    made.rest()


def test_a_gang_meets_and_gives_one_outcome_and_its_workers_stay(driver: Driver) -> None:
    pids = []
    for _ in range(2):
        number = driver.submit("meet", ranks=4)
        assert driver.dispatcher.free_slots == 0
        outcome = driver.finish(number)
        assert driver.dispatcher.free_slots == 4
        assert (outcome.ending, outcome.metrics["loss"]) == (Ending.COMPLETED, 0.0)
        assert len(outcome.details["rank_peak_memory_bytes"]) == 4
        assert driver.reports(number) == [0, 1, 2]
        pids.append(driver.pids(number, 4))
    assert pids[0] == pids[1]
    assert len(pids[0]) == 4


@pytest.mark.parametrize(("how", "failure"), [("dies", "crashed"), ("raises", "out_of_memory")])
def test_one_rank_that_ends_badly_ends_all(driver: Driver, how: str, failure: str) -> None:
    bad = driver.submit("meet", ranks=4, steps=10_000, **{how: 2})
    outcome = driver.finish(bad)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, failure)
    assert outcome.message.startswith(
        "rank 2: the worker" if how == "dies" else "this rank is full"
    )
    driver.rest()
    good = driver.submit(
        "meet", ranks=4
    )  # on the workers that are left, and those that replace the others
    assert driver.finish(good).ending is Ending.COMPLETED
    left = {pid for pid in driver.pids(bad, 4) if psutil.pid_exists(pid)}
    assert left <= driver.pids(good, 4)


def test_ranks_take_free_slots_beside_other_trials(driver: Driver) -> None:
    alone = driver.submit("patient")
    gang = driver.submit("meet", ranks=3)
    assert driver.dispatcher.free_slots == 0
    assert driver.finish(gang).ending is Ending.COMPLETED
    assert alone not in driver.outcomes()
    driver.dispatcher.stop(alone, 1, StopRequest.STOP)
    assert driver.finish(alone).ending is Ending.STOPPED


REQUESTS = [
    (StopRequest.STOP, Ending.STOPPED),
    (StopRequest.PAUSE, Ending.PAUSED),
    (StopRequest.INTERRUPT, Ending.INTERRUPTED),
]


@pytest.mark.parametrize(("how", "ending"), REQUESTS)
def test_a_trial_may_be_asked_to_end_before_it_has_begun(
    driver: Driver, how: StopRequest, ending: Ending
) -> None:
    number = driver.submit("patient")
    driver.dispatcher.stop(number, 1, how)
    driver.dispatcher.stop(number + 1, 1, how)  # which there is not
    assert driver.finish(number).ending is ending
    assert isinstance(driver.events[0], Started)


def test_killing_ends_an_attempt_and_frees_its_slot(driver: Driver) -> None:
    number = driver.submit("patient")
    driver.until(lambda: bool(driver.reports(number)))
    driver.dispatcher.kill(number, 1, "timeout", "too long")
    driver.rest()
    other = driver.submit("patient")
    driver.until(lambda: bool(driver.reports(other)))
    assert driver.finish(number).failure == "timeout"
    driver.dispatcher.stop(other, 1, StopRequest.STOP)
    assert driver.finish(other).ending is Ending.STOPPED


def test_a_trial_without_a_step_for_too_long_is_a_time_out(driver: Driver) -> None:
    number = driver.submit("hang", timeout=2.5)
    outcome = driver.finish(number)
    assert outcome.failure == "timeout"
    assert outcome.message.startswith("no step or report for ")


def test_a_rank_that_hangs_ends_all_and_says_where(driver: Driver) -> None:
    number = driver.submit("meet", ranks=4, steps=10_000, hangs=2, timeout=8.0)
    outcome = driver.finish(number)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "timeout")
    driver.rest()
    log = (driver.folder / str(number) / "logs" / "attempt-1-rank-2.log").read_text()
    assert "the attempt hangs" in log
    assert "in meet" in log
    assert driver.finish(driver.submit("meet", ranks=4)).ending is Ending.COMPLETED
    gone = driver.pids(number, 4)
    assert not any(psutil.pid_exists(pid) for pid in gone)
