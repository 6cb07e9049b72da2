"""What all dispatchers do, then those with workers: gangs, kills, deaths, hangs on four slots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from driver import Driver, behave, replayed

from automl.core.resources import Resources
from automl.dispatch.base import Dispatcher
from automl.dispatch.inline import InlineDispatcher
from automl.dispatch.simulated import SimulatedDispatcher
from workers.protocol import Cause, Ending, Event, Outcome, Report, Started, StopRequest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def on_local() -> Iterator[Dispatcher]:
    from automl.dispatch.local import LocalDispatcher

    with closing(LocalDispatcher("driver", 4, Resources(), objective=behave)) as dispatcher:
        yield dispatcher


@pytest.fixture(scope="module")
def on_ray(shared_ray: None) -> Iterator[Dispatcher]:
    from automl.dispatch.ray import RayDispatcher

    with closing(RayDispatcher("driver", 4, Resources(), objective=behave)) as dispatcher:
        yield dispatcher


@pytest.fixture(scope="module")
def on_inline() -> Iterator[Dispatcher]:
    with closing(InlineDispatcher(4, behave)) as dispatcher:
        yield dispatcher


@pytest.fixture(scope="module")
def on_simulated() -> Iterator[Dispatcher]:
    with closing(SimulatedDispatcher(replayed, 4)) as dispatcher:
        yield dispatcher


WORKERS = ("on_local", "on_ray")


@pytest.fixture(scope="module", params=WORKERS)
def four_slots(request: pytest.FixtureRequest) -> Dispatcher:
    found: Dispatcher = request.getfixturevalue(request.param)
    return found


_numbers = itertools.count(step=1000)


@pytest.fixture
def driver(tmp_path: Path, four_slots: Dispatcher) -> Iterator[Driver]:
    made = Driver(four_slots, tmp_path, next(_numbers))
    made.rest()  # until the workers have started
    yield made
    made.rest()


@pytest.fixture(params=["on_inline", "on_simulated", *WORKERS])
def any_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    made = Driver(request.getfixturevalue(request.param), tmp_path, next(_numbers))
    made.rest()
    return made


def test_an_attempt_starts_reports_in_order_and_ends_once(any_driver: Driver) -> None:
    began = any_driver.dispatcher.now()
    number = any_driver.submit("count")
    assert any_driver.dispatcher.free_slots < 4
    outcome = any_driver.finish(number)
    assert (outcome.ending, outcome.metrics["loss"]) == (Ending.COMPLETED, 0.0)
    assert [type(event) for event in any_driver.events if event is not None] == [
        Started,
        *[Report] * 3,
        Outcome,
    ]
    assert any_driver.reports(number) == [1, 2, 3]
    any_driver.rest()
    assert any_driver.dispatcher.now() >= began + outcome.seconds > began


def test_an_exception_of_the_objective_is_the_failure(any_driver: Driver) -> None:
    outcome = any_driver.finish(any_driver.submit("raise"))
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "crashed")
    assert (outcome.message, outcome.exception) == (
        "ValueError: this configuration is wrong",
        "ValueError",
    )
    any_driver.rest()


REQUESTS = [
    (StopRequest.STOP, Ending.STOPPED),
    (StopRequest.PAUSE, Ending.PAUSED),
    (StopRequest.INTERRUPT, Ending.INTERRUPTED),
]


@pytest.mark.parametrize(("how", "ending"), REQUESTS)
def test_a_request_at_a_report_ends_the_attempt(
    any_driver: Driver, how: StopRequest, ending: Ending
) -> None:
    dispatcher, number = any_driver.dispatcher, any_driver.submit("patient")

    def handle(event: Event | None) -> None:
        any_driver.events.append(event)
        if isinstance(event, Report):
            dispatcher.stop(number, 1, how)
            dispatcher.stop(number + 1, 1, how)  # which there is not

    while number not in any_driver.outcomes():
        dispatcher.poll(handle, 0.1)
    assert any_driver.outcomes()[number].ending is ending
    any_driver.rest()


def test_a_gang_meets_gives_one_outcome_and_ends(driver: Driver) -> None:
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
    assert len(pids[0] | pids[1]) == 8, "each rank has a process of its own"
    driver.until(lambda: not any(map(psutil.pid_exists, pids[0] | pids[1])))


@pytest.mark.parametrize(("how", "failure"), [("dies", "crashed"), ("raises", "out_of_memory")])
def test_one_rank_that_ends_badly_ends_all(
    driver: Driver, count_of_kills: None, how: str, failure: str
) -> None:
    bad = driver.submit("meet", ranks=4, steps=10_000, **{how: 2})
    outcome = driver.finish(bad)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, failure)
    assert outcome.message.startswith(
        "rank 2: the worker" if how == "dies" else "this rank is full"
    )
    driver.rest()
    good = driver.submit("meet", ranks=4)
    assert driver.finish(good).ending is Ending.COMPLETED
    assert not any(map(psutil.pid_exists, driver.pids(bad, 4)))


def test_ranks_take_free_slots_beside_other_trials(driver: Driver) -> None:
    alone = driver.submit("patient")
    gang = driver.submit("meet", ranks=3)
    assert driver.dispatcher.free_slots == 0
    assert driver.finish(gang).ending is Ending.COMPLETED
    assert alone not in driver.outcomes()
    driver.dispatcher.stop(alone, 1, StopRequest.STOP)
    assert driver.finish(alone).ending is Ending.STOPPED


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


DEATHS = [
    ("kill", "was killed by signal 9 (SIGKILL)", (Cause.KILLED, -9)),
    ("segfault", "was killed by signal 11 (SIGSEGV)", (Cause.SIGNALLED, -11)),
    ("exit", "ended with exit status 3", (Cause.EXITED, 3)),
]


@pytest.mark.parametrize(("how", "words", "fact"), DEATHS)
def test_a_death_is_told_and_the_slot_goes_on(
    driver: Driver, count_of_kills: None, how: str, words: str, fact: tuple[Cause, int]
) -> None:
    beside = driver.submit("patient")
    outcome = driver.finish(driver.submit(how))
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "crashed")
    assert outcome.worker_lost
    assert outcome.message.startswith("the worker (process ")
    assert outcome.message.endswith(words)
    assert (outcome.cause, outcome.exit_status) == fact
    assert beside not in driver.outcomes(), "the others go on"
    driver.dispatcher.stop(beside, 1, StopRequest.STOP)
    assert driver.finish(beside).ending is Ending.STOPPED


def test_output_goes_to_the_log(driver: Driver) -> None:
    number = driver.submit("print", megabytes=1)
    assert driver.finish(number).ending is Ending.COMPLETED
    lines = driver.log(number).splitlines()
    assert lines[0].startswith(f"driver/{number}.1 do=print")
    assert lines[1] == "the first line"
    assert "a line of another process" in lines
    assert "the last line, of a C library" in lines
    assert len(lines) > 10_000
