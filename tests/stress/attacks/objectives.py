"""Hostile objectives: each runs inline, where it could take the controller with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from attacks.frame import attack, automl, said
from automl import sweeps
from automl.core.budget import Budget
from automl.core.goals import parse_goals
from automl.core.snapshot import Snapshot
from automl.core.spec import SweepSpec
from automl.ledger import Ledger
from search_spaces import Float, Space
from workers.context import Context

MAX_SECONDS = 10.0  # of processor time, for 100,000 reports
MAX_MILLISECONDS = 20.0  # of processor time, for a trial
MAX_GROWTH = 20e6
REPORTS = 100_000
TRIALS = 3_000


class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit(7)


def sweep(folder: Path, objective: Callable[[Context], Any], trials: int = 3) -> Snapshot:
    """Run a sweep of this objective inline; begins it, or resumes it."""
    spec = SweepSpec(
        "test",
        Space(Float("x", 0.0, 1.0, default=0.5)),
        parse_goals("minimize loss"),
        budget=Budget(trials=trials),
        suggester="random",
        workers=1,
    )
    with closing(Ledger.open(folder, create=True)) as ledger:
        if not ledger.exists("test"):
            ledger.create_sweep(spec)
        return sweeps.run(
            spec, ledger=ledger, objective=objective, dispatcher="inline", resume=True
        )


def states(snapshot: Snapshot) -> str:
    return " ".join(str(trial.state) for trial in snapshot.trials)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@attack("its trial crashes, the others complete", quick=True)
def an_exception_whose_text_raises(folder: Path) -> str:
    def objective(trial: Context) -> dict[str, float]:
        if trial.number == 0:
            raise Silent
        return {"loss": 1.0}

    snapshot = sweep(folder, objective)
    assert states(snapshot) == "failed completed completed", states(snapshot)
    return snapshot.trials[0].message


@attack("every report is kept", quick=True)
def reports_of_four_threads(folder: Path) -> str:
    def objective(trial: Context) -> dict[str, float]:
        def report() -> None:
            for step in range(200):
                trial.report(step=step, loss=1.0)

        threads = [threading.Thread(target=report) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"loss": 1.0}

    snapshot = sweep(folder, objective)
    counts = [len(trial.reports) for trial in snapshot.trials]
    assert counts == [800] * 3, counts
    return f"{sum(counts)} reports"


@attack("the child ends, and the sweep goes on in one process", quick=True)
def a_fork_of_which_both_return(folder: Path) -> str:
    def objective(trial: Context) -> dict[str, float]:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return {"loss": 1.0 if child else -1.0}

    snapshot = sweep(folder, objective)
    assert states(snapshot) == "completed completed completed", states(snapshot)
    assert {trial.metrics["loss"] for trial in snapshot.trials} == {1.0}
    return "3 of 3 trials"


@attack("the trial fails after its retries, and the others run", quick=True)
def a_trial_that_kills_its_controller(folder: Path) -> str:
    def objective(trial: Context) -> dict[str, float]:
        if trial.number == 0:
            signal.raise_signal(signal.SIGSEGV)
        return {"loss": 1.0}

    kills = 0
    for _ in range(6):
        child = os.fork()
        if child == 0:
            sweep(folder, objective)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        kills += 1
    with closing(Ledger.open(folder, readonly=True)) as ledger:
        snapshot = ledger.snapshot("test")
    assert states(snapshot) == "failed completed completed", states(snapshot)
    return f"{kills} kills, then: {snapshot.trials[0].message}"


@attack("one clear failure, and a small store", quick=True)
def a_list_of_a_million_as_a_metric(folder: Path) -> str:
    snapshot = sweep(folder, lambda trial: {"loss": [1.0] * 1_000_000})
    message = snapshot.trials[0].message
    assert len(message) < 500, f"a message of {len(message)} characters"
    assert size(folder) < 1e6, f"a store of {size(folder)} bytes"
    return message


@attack("the message is cut", quick=True)
def a_message_of_30_megabytes(folder: Path) -> str:
    def objective(trial: Context) -> None:
        raise ValueError("x" * 30_000_000)

    snapshot = sweep(folder, objective)
    assert len(snapshot.trials[0].message) < 5000
    assert size(folder) < 2e6, f"a store of {size(folder)} bytes"
    return f"a store of {size(folder) / 1e3:.0f} kB"


@attack("a text is no number", quick=True)
def a_text_as_a_metric(folder: Path) -> str:
    snapshot = sweep(folder, lambda trial: {"loss": "1.5"})
    assert snapshot.trials[0].failure == "missing_metric"
    return snapshot.trials[0].message


@attack("linear time: 100,000 are committed within 10 s, status within 1 s", seconds=300)
def a_hundred_thousand_reports(folder: Path) -> str:
    def objective(trial: Context) -> dict[str, float]:
        if trial.number == 1:
            for step in range(REPORTS):
                trial.report(step=step, loss=1.0)
        return {"loss": 1.0}

    begun = time.process_time()
    snapshot = sweep(folder / ".automl", objective, 2)
    taken = time.process_time() - begun
    assert len(snapshot.trials[1].reports) == REPORTS
    before = os.times()
    said(automl(folder, "status", "test"))
    after = os.times()
    status = after.children_user + after.children_system
    status -= before.children_user + before.children_system
    text = f"{taken:.1f} s of processor time, status {status:.2f} s"
    assert taken < MAX_SECONDS, text
    assert status < 1.0, text
    return text


@attack("20 ms of processor time a trial, memory flat within 20 MB", seconds=600)
def three_thousand_random_trials(folder: Path) -> str:
    process = psutil.Process()
    resident: list[int] = []

    def objective(trial: Context) -> dict[str, float]:
        if trial.number in (300, TRIALS - 1):
            resident.append(process.memory_info().rss)
        return {"loss": trial.params["x"]}

    begun = time.process_time()
    sweep(folder, objective, TRIALS)
    each = 1e3 * (time.process_time() - begun) / TRIALS
    growth = resident[1] - resident[0]
    text = f"{each:.1f} ms a trial, {growth / 1e6:.1f} MB more at the end"
    assert each < MAX_MILLISECONDS, text
    assert growth < MAX_GROWTH, text
    return text
