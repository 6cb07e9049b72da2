"""What all dispatchers do, then those with workers, then whole sweeps on each of them."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from driver import Driver, behave, replayed
from objectives import SPACE, dying, loss_of, make_spec, quick

import automl
from automl import sweeps
from automl.core import Ended, Resources, Snapshot, SweepSpec, TrialState
from automl.dispatch.base import Dispatcher
from automl.dispatch.inline import InlineDispatcher
from automl.dispatch.simulated import SimulatedDispatcher
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from search_spaces import Choice, Space
from workers.context import Context
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


def test_a_ray_worker_that_hangs_is_replaced(
    on_ray: Dispatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automl.dispatch.ray.dispatcher.SILENT_SECONDS", 5.0)
    driver = Driver(on_ray, tmp_path, next(_numbers))
    driver.rest()
    number = driver.submit("patient")
    driver.until(lambda: bool(driver.reports(number)))
    (started,) = (event for event in driver.events if isinstance(event, Started))
    parent = psutil.Process(int(started.worker.rpartition(":")[2])).parent()
    psutil.Process(parent.ppid()).suspend()  # the worker itself, not what it has started
    assert driver.finish(number).failure == "preempted"
    driver.rest()


def test_output_goes_to_the_log(driver: Driver) -> None:
    number = driver.submit("print", megabytes=1)
    assert driver.finish(number).ending is Ending.COMPLETED
    lines = driver.log(number).splitlines()
    assert lines[0].startswith(f"driver/{number}.1 do=print")
    assert lines[1] == "the first line"
    assert "a line of another process" in lines
    assert "the last line, of a C library" in lines
    assert len(lines) > 10_000


# ------------------------------------------------------------------ whole sweeps


Run = Callable[..., Snapshot]


@pytest.fixture
def run(request: pytest.FixtureRequest, ledger: Ledger) -> Run:
    """Runs a sweep on the dispatcher that is the parameter."""
    dispatcher = request.param
    if dispatcher == "ray":
        request.getfixturevalue("shared_ray")

    def run(spec: SweepSpec, objective: Callable[[Context], Any], **options: Any) -> Snapshot:
        ledger.create_sweep(spec)
        return sweeps.run(
            spec, ledger=ledger, objective=objective, dispatcher=dispatcher, **options
        )

    return run


def on(dispatchers: tuple[str, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", dispatchers, indirect=True)


@on(("local", "ray"))
def test_two_workers_share_the_trials_and_each_has_a_process(ledger: Ledger, run: Run) -> None:
    factor = 2.0  # a closure goes to the workers too

    def objective(trial: Context) -> dict[str, float]:
        print("configuration", trial.number)
        time.sleep(0.1)
        return {"loss": factor * loss_of(trial.params, 0), "pid": os.getpid()}

    snapshot = run(make_spec(trials=8, workers=2), objective)
    assert snapshot.state == "finished"
    assert [str(trial.state) for trial in snapshot.trials] == ["completed"] * 8
    assert len({trial.metrics["pid"] for trial in snapshot.trials}) == 8
    assert os.getpid() not in {trial.metrics["pid"] for trial in snapshot.trials}
    assert snapshot.trials[0].metrics["loss"] == 2.0 * loss_of(SPACE.default(), 0)
    assert snapshot.trials[0].worker.endswith(f":{int(snapshot.trials[0].metrics['pid'])}")
    log = (ledger.files("test").path / "trials" / "3" / "logs" / "attempt-1-rank-0.log").read_text()
    assert log.splitlines()[0].startswith("test/3.1 lr=")
    assert "configuration 3" in log


@on(("local", "ray"))
def test_a_worker_killed_with_9_is_replaced_and_its_trial_tried_again(
    ledger: Ledger, run: Run
) -> None:
    snapshot = run(make_spec(trials=4, workers=2, max_retries=1), dying)
    found = [(str(trial.state), trial.failure, trial.attempts) for trial in snapshot.trials]
    assert found == [
        ("completed", None, 1),
        ("completed", None, 2),
        ("failed", "crashed", 2),
        ("completed", None, 1),
    ]
    assert "the worker (process" in snapshot.trials[2].message


@on(("local", "ray"))
def test_a_worker_that_is_told_to_leave_checkpoints_and_its_trial_goes_on_elsewhere(
    ledger: Ledger,
    run: Run,
) -> None:
    def objective(trial: Context) -> dict[str, float]:
        saved = Path(trial.folder) / "saved"
        first = int(saved.read_text()) if saved.exists() else 0
        for step in range(first, 20):
            time.sleep(0.05)
            if trial.number == 1 and step == 5 and not saved.exists():
                os.kill(os.getpid(), 15)  # as a machine does that is about to be taken away
            if not trial.report(step=step, loss=1.0):
                saved.write_text(str(step + 1))
                break
        return {"loss": 1.0}

    snapshot = run(make_spec(trials=4, workers=1), objective)
    assert [(str(trial.state), trial.attempts) for trial in snapshot.trials] == [
        ("completed", 1),
        ("completed", 2),
        ("completed", 1),
        ("completed", 1),
    ]
    assert [point.step for point in snapshot.trials[1].reports] == list(range(20)), (
        "it went on where it was"
    )
    (ended,) = [
        e for e in ledger.events("test") if isinstance(e, Ended) and e.state is TrialState.WAITING
    ]
    assert (ended.failure, ended.message) == (
        "preempted",
        "the machine of its worker is being taken away",
    )


@on(("local", "ray"))
def test_an_objective_that_cannot_be_sent_is_refused(
    ledger: Ledger, run: Run, tmp_path: Path
) -> None:
    with (
        (tmp_path / "file").open("w") as file,
        pytest.raises(UsageError, match="cannot be sent to workers"),
    ):
        run(make_spec(trials=1), lambda trial: {"loss": float(file.fileno())})


class Loaded:
    """Cannot be loaded by a worker."""

    def __reduce__(self) -> Any:
        return (_only_here, (os.getpid(),))

    def __call__(self, trial: Context) -> dict[str, float]:
        return {"loss": 0.0}


def _only_here(pid: int) -> Loaded:
    if os.getpid() != pid:
        raise RuntimeError("this machine lacks the data")
    return Loaded()


@on(("local", "ray"))
def test_an_objective_that_workers_cannot_load_ends_the_sweep_with_the_cause(
    ledger: Ledger,
    run: Run,
) -> None:
    with pytest.raises(AutomlError, match="this machine lacks the data"):
        run(make_spec(trials=3), Loaded())
    assert ledger.snapshot("test").state == "failed"


@on(("ray",))
def test_more_slots_than_there_is_room_for_is_refused(
    ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from automl.dispatch.ray import pool

    monkeypatch.setattr(pool, "PLACEMENT_SECONDS", 1.0)
    with pytest.raises(UsageError, match="no room for 9 workers"):
        run(make_spec(trials=1, workers=9), quick)


@pytest.fixture(params=["local", "ray"])
def worker_dispatcher(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("shared_ray")
    return str(request.param)


def distributed(trial: Any) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    (trial.folder / f"pid-{trial.rank}").write_text(str(os.getpid()))
    trial.barrier()
    pids = {file.read_text() for file in trial.folder.glob("pid-*")}
    trial.report(step=1, loss=float(total))
    return {"loss": float(total), "processes": len(pids)}


def test_the_ranks_of_a_trial_are_processes_that_meet(
    tmp_path: Path, worker_dispatcher: str
) -> None:
    result = automl.sweep(
        distributed,
        Space(Choice("num_gpus", [1, 2])),
        "minimize loss",
        trials=2,
        workers=2,
        ranks="num_gpus",
        suggester="random",
        dispatcher=worker_dispatcher,
        store=tmp_path,
        max_retries=0,
    )
    expected = {1: (1.0, 1), 2: (3.0, 2)}
    found = [(t.params["num_gpus"], t.metrics, t.message) for t in result.trials]
    assert {number for number, _, _ in found} == {1, 2}
    for number, metrics, message in found:
        assert (metrics.get("loss"), metrics.get("processes")) == expected[number], message


def resumable(trial: Any) -> dict[str, float]:
    """Writes each epoch that it trains to a log of its own."""
    state = trial.restore() or {"epoch": 0, "weights": np.zeros(3)}
    assert trial.resumed == (state["epoch"] > 0)
    loss = 9.0
    for epoch in range(state["epoch"] + 1, 10):
        with (trial.folder / "own.log").open("a") as log:
            log.write(f"{epoch}\n")
        time.sleep(0.04)  # a decision to pause arrives within a few epochs, on a busy machine too
        weights = state["weights"] + trial.params["rate"]
        state = {"epoch": epoch, "weights": weights}
        loss = float(np.abs(weights - 5.0).sum())
        trial.save(state)
        if not trial.report(step=epoch, loss=loss):
            break
    return {"loss": loss}


@pytest.mark.parametrize("stopper", ["asha"])
def test_a_function_that_is_paused_trains_no_epoch_twice(
    tmp_path: Path, worker_dispatcher: str, stopper: str
) -> None:
    result = automl.sweep(
        resumable,
        {"rate": (0.0, 1.0)},
        "minimize loss",
        trials=16,
        workers=2,
        suggester="random",
        stopper=stopper,
        max_steps=9,
        dispatcher=worker_dispatcher,
        store=tmp_path,
    )
    assert [trial.message for trial in result.trials if trial.state is TrialState.FAILED] == []
    assert any(trial.attempts > 1 for trial in result.trials), "one was paused and went on"
    logs = list(tmp_path.rglob("own.log"))
    assert len(logs) == len(result.trials)
    for log in logs:
        epochs = [int(line) for line in log.read_text().split()]
        assert epochs == list(range(1, len(epochs) + 1)), "no epoch was trained twice"
    assert [trial.state for trial in result.trials].count(TrialState.COMPLETED) > 0
