"""Sweeps on each dispatcher: lost workers, failures, objectives to be pickled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from objectives import SPACE, dying, loss_of, make_spec, quick

import automl
from automl import sweeps
from automl.core.events import Ended
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from workers.context import Context

pytestmark = pytest.mark.timeout(300)


Run = Callable[..., Snapshot]
WORKERS = ("local", "ray")
ALL = ("inline", *WORKERS)


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


@on(WORKERS)
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


@on(("ray",))
def test_the_dashboard_of_ray_lists_the_log_of_an_attempt(ledger: Ledger, run: Run) -> None:
    import ray

    run(make_spec(trials=1), quick)
    log = (ledger.files("test").path / "trials" / "0" / "logs" / "attempt-1-rank-0.log").read_text()
    listed = Path(ray.init(ignore_reinit_error=True).address_info["session_dir"], "logs")
    assert (listed / "test-trial-0-attempt-1-rank-0.log").read_text() == log


@on(WORKERS)
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


@on(WORKERS)
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


@on(WORKERS)
def test_a_worker_that_the_kernel_kills_for_its_memory_is_out_of_memory(
    ledger: Ledger, run: Run, count_of_kills: None, limited: Path
) -> None:
    def objective(trial: Context) -> dict[str, float]:
        hoard = []
        while trial.number == 1:
            (limited / "cgroup.procs").write_text(str(os.getpid()))
            hoard.append(b"x" * (8 << 20))
        return {"loss": 1.0}

    snapshot = run(make_spec(trials=3), objective)
    assert [(str(t.state), t.failure, t.attempts) for t in snapshot.trials] == [
        ("completed", None, 1),
        ("failed", "out_of_memory", 1),
        ("completed", None, 1),
    ]
    assert "its kernel killed the worker" in snapshot.trials[1].message


@on(ALL)
def test_what_the_configuration_caused_is_not_tried_again(ledger: Ledger, run: Run) -> None:
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

    snapshot = run(make_spec(trials=5), objective)
    assert [trial.failure for trial in snapshot.trials] == [
        None,
        "out_of_memory",
        "non_finite",
        "missing_metric",
        "crashed",
    ]
    assert all(trial.attempts == 1 for trial in snapshot.trials)


@on(WORKERS)
def test_an_objective_that_cannot_be_sent_is_refused(
    ledger: Ledger, run: Run, tmp_path: Path
) -> None:
    with (
        (tmp_path / "file").open("w") as file,
        pytest.raises(UsageError, match="cannot be sent to workers"),
    ):
        run(make_spec(trials=1), lambda trial: {"loss": float(file.fileno())})


@on(ALL)
def test_an_objective_of_a_file_that_workers_cannot_import(
    ledger: Ledger, run: Run, tmp_path: Path
) -> None:
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
        snapshot = run(make_spec(trials=1), module.objective)
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


@on(WORKERS)
def test_an_objective_that_workers_cannot_load_ends_the_sweep_with_the_cause(
    ledger: Ledger,
    run: Run,
) -> None:
    with pytest.raises(AutomlError, match="this machine lacks the data"):
        run(make_spec(trials=3), Loaded())
    assert ledger.snapshot("test").state == "failed"


@on(("ray",))
def test_more_slots_than_there_is_room_for_is_refused(
    ledger: Ledger,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from automl.dispatch.ray import timeouts

    monkeypatch.setattr(timeouts, "PLACEMENT_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "ROOM_SECONDS", 0.1)
    with pytest.raises(UsageError, match="no room for 9 workers"):
        run(make_spec(trials=1, workers=9), quick)
    assert "waits at most 1 s for room on the Ray cluster: it has room for" in caplog.text
