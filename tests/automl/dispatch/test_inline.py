"""Trials in this process: many reports, reports of threads, forks, and exceptions of any kind."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec, run_inline, states

from automl.core import Snapshot, TrialState
from automl.errors import StoreError, StoreFailure
from automl.ledger import Hold, Ledger
from workers.context import Context


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with closing(Ledger.open(tmp_path, create=True)) as made:
        yield made


def sweep(ledger: Ledger, objective: Any, trials: int = 1, **fields: Any) -> Snapshot:
    return run_inline(ledger, make_spec(trials=trials, **fields), objective)


def test_a_report_is_committed_while_its_objective_computes(tmp_path: Path, ledger: Ledger) -> None:
    def objective(trial: Context) -> dict[str, float]:
        trial.report(step=0, loss=1.0)
        deadline = time.monotonic() + 20
        with closing(Ledger.open(tmp_path, readonly=True)) as reader:
            while not reader.trials("test")[0].reports and time.monotonic() < deadline:
                time.sleep(0.02)
            return {"loss": 1.0, "seen": len(reader.trials("test")[0].reports)}

    assert sweep(ledger, objective).trials[0].metrics["seen"] == 1


def test_threads_of_an_objective_may_report(ledger: Ledger) -> None:
    def objective(trial: Context) -> dict[str, float]:
        def report(first: int) -> None:
            for step in range(first, first + 50):
                trial.report(step=step, loss=1.0)
                time.sleep(0.002)

        threads = [threading.Thread(target=report, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"loss": 1.0}

    snapshot = sweep(ledger, objective, trials=2)
    assert states(snapshot) == ["completed", "completed"]
    for trial in ledger.trials("test"):
        assert [report.sequence for report in trial.reports] == list(range(200))


def test_a_store_that_fails_is_no_failure_of_the_trial(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Hold.commit

    def broken(self: Hold, *arguments: Any, **options: Any) -> bool:
        if any(trial.reports for trial in self.state.trials):
            raise StoreError("the disk is full")
        return commit(self, *arguments, **options)

    def objective(trial: Context) -> dict[str, float]:
        deadline = time.monotonic() + 20
        while trial.report(step=0, loss=1.0) and time.monotonic() < deadline:
            time.sleep(0.02)
        return {"loss": 1.0}

    with monkeypatch.context() as patch:
        patch.setattr(Hold, "commit", broken)
        with pytest.raises(StoreFailure, match="the disk is full"):
            sweep(ledger, objective)
    assert ledger.trials("test")[0].state is TrialState.RUNNING
    snapshot = run_inline(ledger, make_spec(trials=1), lambda trial: {"loss": 2.0}, resume=True)
    assert states(snapshot) == ["completed"]
