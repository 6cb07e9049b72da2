from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from objectives import SPACE, dying, loss_of, make_spec, marked, patient, quick

import automl
from automl import sweeps
from automl.core.budget import Budget
from automl.core.events import Ended
from automl.core.resources import Resources
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
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


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[None]:
    """One Ray for all tests of this file; the dispatcher uses what is initialised already."""
    import ray

    from automl.dispatch.ray.session import environment

    with environment():
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
        )
        yield
        ray.shutdown()


@pytest.fixture
def ledger(tmp_path: Path, shared_ray: None) -> Ledger:
    return Ledger.open(tmp_path, create=True)


def run(
    ledger: Ledger, spec: SweepSpec, objective: Callable[[Context], Any], **options: Any
) -> Snapshot:
    if not options.get("resume"):
        ledger.create_sweep(spec)
    return sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="ray", **options)


def test_two_workers_share_the_trials_and_stay_warm(ledger: Ledger) -> None:
    from ray._private.worker import _global_node as node

    factor = 2.0  # a closure goes to the workers too

    def objective(trial: Context) -> dict[str, float]:
        print("configuration", trial.number)
        time.sleep(0.1)
        return {"loss": factor * loss_of(trial.params, 0), "pid": os.getpid()}

    snapshot = run(ledger, make_spec(trials=8, workers=2), objective)
    assert snapshot.state == "finished"
    assert [str(trial.state) for trial in snapshot.trials] == ["completed"] * 8
    assert len({trial.metrics["pid"] for trial in snapshot.trials}) == 2
    assert os.getpid() not in {trial.metrics["pid"] for trial in snapshot.trials}
    assert snapshot.trials[0].metrics["loss"] == 2.0 * loss_of(SPACE.default(), 0)
    assert (
        snapshot.trials[0].details["worker"].endswith(f":{int(snapshot.trials[0].metrics['pid'])}")
    )
    log = (ledger.folder("test") / "trials" / "3" / "logs" / "attempt-1-rank-0.log").read_text()
    assert log.splitlines()[0].startswith("test/3.1 lr=")
    assert "configuration 3" in log
    listed = Path(node.get_logs_dir_path())  # where Ray's dashboard looks
    assert (listed / "test-trial-3-attempt-1-rank-0.log").read_text() == log


def test_every_report_arrives_in_order(ledger: Ledger) -> None:
    def objective(trial: Context) -> dict[str, float]:
        for step in range(200):
            trial.report(step=step, loss=float(step))
        return {"loss": -1.0}

    snapshot = run(ledger, make_spec(trials=2), objective)
    for trial in snapshot.trials:
        assert [point.step for point in trial.reports] == list(range(200))
        assert trial.metrics["loss"] == -1.0


def test_a_worker_killed_with_9_is_replaced_and_its_trial_tried_again(ledger: Ledger) -> None:
    snapshot = run(ledger, make_spec(trials=4, workers=2, max_retries=1), dying)
    found = [(str(trial.state), trial.failure, trial.attempts) for trial in snapshot.trials]
    assert found == [
        ("completed", None, 1),
        ("completed", None, 2),
        ("failed", "crashed", 2),
        ("completed", None, 1),
    ]
    assert "the worker (process" in snapshot.trials[2].message


def test_a_worker_that_is_told_to_leave_checkpoints_and_its_trial_goes_on_elsewhere(
    ledger: Ledger,
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
        return {"loss": 1.0, "pid": os.getpid()}

    snapshot = run(ledger, make_spec(trials=4, workers=1), objective)
    assert [(str(trial.state), trial.attempts) for trial in snapshot.trials] == [
        ("completed", 1),
        ("completed", 2),
        ("completed", 1),
        ("completed", 1),
    ]
    assert [point.step for point in snapshot.trials[1].reports] == list(range(20)), (
        "it went on where it was"
    )
    pids = [trial.metrics["pid"] for trial in snapshot.trials]
    assert pids[0] != pids[1] == pids[2] == pids[3], "the worker that left got nothing more to do"
    (ended,) = [
        e for e in ledger.events("test") if isinstance(e, Ended) and e.state is TrialState.WAITING
    ]
    assert (ended.failure, ended.message) == (
        "preempted",
        "the machine of its worker is being taken away (retry 1 of 2)",
    )


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group of processes that together may have 100 MB; needs root."""
    root = Path("/sys/fs/cgroup")
    group = (
        root if (root / "cgroup.controllers").exists() else root / "memory"
    ) / f"automl-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        limit = group / (
            "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
        )
        if not limit.exists():
            pytest.skip("control groups do not limit memory here")
        limit.write_text(str(100 << 20))
        yield group
    finally:
        time.sleep(0.2)  # until the kernel has buried what it killed
        group.rmdir()


def test_a_worker_that_the_kernel_kills_for_its_memory_is_out_of_memory(
    ledger: Ledger, limited: Path
) -> None:
    def objective(trial: Context) -> dict[str, float]:
        hoard = []
        while trial.number == 1:
            (limited / "cgroup.procs").write_text(str(os.getpid()))
            hoard.append(b"x" * (8 << 20))
        return {"loss": 1.0}

    snapshot = run(ledger, make_spec(trials=3), objective)
    assert [(str(t.state), t.failure, t.attempts) for t in snapshot.trials] == [
        ("completed", None, 1),
        ("failed", "out_of_memory", 1),
        ("completed", None, 1),
    ]
    assert "its kernel killed the worker" in snapshot.trials[1].message


def test_what_the_configuration_caused_is_not_tried_again(ledger: Ledger) -> None:
    def objective(trial: Context) -> Any:
        if trial.number == 1:
            raise automl.TrialFailure("out_of_memory", "too large")
        if trial.number == 2:
            return {"loss": float("nan")}
        if trial.number == 3:
            return {"lost": 1.0}
        if trial.number == 4:
            raise SystemExit(3)
        return {"loss": 1.0}

    snapshot = run(ledger, make_spec(trials=5), objective)
    assert [trial.failure for trial in snapshot.trials] == [
        None,
        "out_of_memory",
        "non_finite",
        "missing_metric",
        "crashed",
    ]
    assert all(trial.attempts == 1 for trial in snapshot.trials)


def test_time_stops_what_runs(ledger: Ledger) -> None:
    def started(snapshot: Snapshot) -> None:
        if any(len(trial.reports) > 2 for trial in snapshot.trials):
            ledger.request_stop("test")

    snapshot = run(
        ledger, make_spec(budget=Budget(time=100.0), workers=2), patient, on_change=started
    )
    assert snapshot.state == "finished"
    assert {str(trial.state) for trial in snapshot.trials} == {"stopped"}
    assert any(trial.metrics.get("loss", 0) > 0 for trial in snapshot.trials)


def test_an_objective_that_cannot_be_sent_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with (
        (tmp_path / "file").open("w") as file,
        pytest.raises(UsageError, match="cannot be sent to workers"),
    ):
        run(ledger, make_spec(trials=1), lambda trial: {"loss": float(file.fileno())})


def test_an_objective_of_a_file_that_workers_cannot_import(ledger: Ledger, tmp_path: Path) -> None:
    import importlib.util
    import sys

    path = tmp_path / "mine.py"
    path.write_text(
        "FACTOR = 3.0\ndef helper(x):\n    return FACTOR * x\ndef objective(trial):\n"
        "    return {'loss': helper(trial.params['lr'])}\n"
    )
    spec = importlib.util.spec_from_file_location("mine_objective", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mine_objective"] = module
    try:
        spec.loader.exec_module(module)
        snapshot = run(ledger, make_spec(trials=1), module.objective)
    finally:
        del sys.modules["mine_objective"]
    assert snapshot.trials[0].metrics["loss"] == pytest.approx(3e-3)


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


def test_an_objective_that_workers_cannot_load_ends_the_sweep_with_the_cause(
    ledger: Ledger,
) -> None:
    with pytest.raises(AutomlError, match="this machine lacks the data"):
        run(ledger, make_spec(trials=3), Loaded())
    assert ledger.snapshot("test").state == "failed"


def test_more_slots_than_there_is_room_for_is_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    from automl.dispatch.ray import timeouts

    monkeypatch.setattr(timeouts, "PLACEMENT_SECONDS", 1.0)
    with pytest.raises(UsageError, match="no room for 9 workers"):
        run(ledger, make_spec(trials=1, workers=9), quick)


def test_the_states_of_a_sweep_on_ray_are_those_of_one_in_this_process(ledger: Ledger) -> None:
    run(ledger, make_spec(trials=3), marked)
    assert {trial.state for trial in ledger.trials("test")} == {TrialState.COMPLETED}
    assert all(
        [point.step for point in trial.reports] == [0, 1, 2, 3] for trial in ledger.trials("test")
    )


# ---------------------------------------------------------------------- the dispatcher alone


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


class Bench:
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
                "bench",
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
        """Until every slot is free: those of workers that died are once others have begun in their place."""
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

    dispatcher = RayDispatcher("bench", 4, Resources(), objective=behave)
    yield dispatcher
    dispatcher.close()


_numbers = itertools.count(step=1000)


@pytest.fixture
def bench(tmp_path: Path, four_slots: Dispatcher) -> Iterator[Bench]:
    made = Bench(four_slots, tmp_path, next(_numbers))
    yield made
    made.rest()


def test_a_gang_meets_and_gives_one_outcome_and_its_workers_stay(bench: Bench) -> None:
    pids = []
    for _ in range(2):
        number = bench.submit("meet", ranks=4)
        assert bench.dispatcher.free_slots == 0
        outcome = bench.finish(number)
        assert bench.dispatcher.free_slots == 4
        assert (outcome.ending, outcome.metrics["loss"]) == (Ending.COMPLETED, 0.0)
        assert len(outcome.details["rank_peak_memory_bytes"]) == 4
        assert bench.reports(number) == [0, 1, 2]
        pids.append(bench.pids(number, 4))
    assert pids[0] == pids[1]
    assert len(pids[0]) == 4


@pytest.mark.parametrize(("how", "failure"), [("dies", "crashed"), ("raises", "out_of_memory")])
def test_one_rank_that_ends_badly_ends_all(bench: Bench, how: str, failure: str) -> None:
    bad = bench.submit("meet", ranks=4, steps=10_000, **{how: 2})
    outcome = bench.finish(bad)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, failure)
    assert outcome.message.startswith(
        "rank 2: the worker" if how == "dies" else "this rank is full"
    )
    bench.rest()
    good = bench.submit(
        "meet", ranks=4
    )  # on the workers that are left, and those that replace the others
    assert bench.finish(good).ending is Ending.COMPLETED
    left = {pid for pid in bench.pids(bad, 4) if psutil.pid_exists(pid)}
    assert left <= bench.pids(good, 4)


def test_ranks_take_free_slots_beside_other_trials(bench: Bench) -> None:
    alone = bench.submit("patient")
    gang = bench.submit("meet", ranks=3)
    assert bench.dispatcher.free_slots == 0
    assert bench.finish(gang).ending is Ending.COMPLETED
    assert alone not in bench.outcomes()
    bench.dispatcher.stop(alone, 1, StopRequest.STOP)
    assert bench.finish(alone).ending is Ending.STOPPED


HALTS = [
    (StopRequest.STOP, Ending.STOPPED),
    (StopRequest.PAUSE, Ending.PAUSED),
    (StopRequest.INTERRUPT, Ending.INTERRUPTED),
]


@pytest.mark.parametrize(("how", "ending"), HALTS)
def test_a_trial_may_be_asked_to_end_before_it_has_begun(
    bench: Bench, how: StopRequest, ending: Ending
) -> None:
    number = bench.submit("patient")
    bench.dispatcher.stop(number, 1, how)
    bench.dispatcher.stop(number + 1, 1, how)  # which there is not
    assert bench.finish(number).ending is ending
    assert isinstance(bench.events[0], Started)


def test_killing_ends_an_attempt_and_frees_its_slot(bench: Bench) -> None:
    number = bench.submit("patient")
    bench.until(lambda: bool(bench.reports(number)))
    bench.dispatcher.kill(number, 1, "timeout", "too long")
    bench.rest()
    other = bench.submit("patient")
    bench.until(lambda: bool(bench.reports(other)))
    assert bench.finish(number).failure == "timeout"
    bench.dispatcher.stop(other, 1, StopRequest.STOP)
    assert bench.finish(other).ending is Ending.STOPPED


def test_a_trial_without_a_step_for_too_long_is_a_time_out(bench: Bench) -> None:
    number = bench.submit("hang", timeout=2.5)
    outcome = bench.finish(number)
    assert outcome.failure == "timeout"
    assert outcome.message.startswith("no step or report for ")


def test_a_rank_that_hangs_ends_all_and_says_where(bench: Bench) -> None:
    number = bench.submit("meet", ranks=4, steps=10_000, hangs=2, timeout=8.0)
    outcome = bench.finish(number)
    assert (outcome.ending, outcome.failure) == (Ending.FAILED, "timeout")
    bench.rest()
    log = (bench.folder / str(number) / "logs" / "attempt-1-rank-2.log").read_text()
    assert "the attempt hangs" in log
    assert "in meet" in log
    assert bench.finish(bench.submit("meet", ranks=4)).ending is Ending.COMPLETED
    gone = bench.pids(number, 4)
    assert not any(psutil.pid_exists(pid) for pid in gone)
