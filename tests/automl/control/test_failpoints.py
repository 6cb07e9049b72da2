"""A controller is killed with -9 at every named point of a sweep, and the next one takes it up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faults
import pytest
import soak_sweeps
from objectives import make_spec, quick
from soak_kills import soak_controllers

from automl import sweeps
from automl.core.trial import TrialState
from automl.ledger import Ledger


def test_a_controller_dies_at_every_point_and_nothing_is_lost_or_counted_twice(
    tmp_path: Path,
) -> None:
    count = soak_controllers(len(faults.POINTS), seed=1, folder=tmp_path)
    assert (count.problems, dict(count.kills)) == ([], dict.fromkeys(faults.POINTS, 1))
    assert (count.lost, count.doubled, count.ended) == (0, 0, count.sweeps)
    assert count.acknowledged > 50


def test_clocks_that_jump_an_hour_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock of this process jumps to and fro in the middle of each trial."""
    real, jump = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jump[0])
    hours: Iterator[float] = iter([3600.0, -3600.0, 0.0, -7200.0, 86400.0] * 9)

    def objective(trial: Any) -> dict[str, float]:
        for step in range(3):
            jump[0] = next(hours)
            assert trial.report(step=step, loss=1.0)
        return {"loss": 1.0}

    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(trials=5)
    ledger.create_sweep(spec)
    snapshot = sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="inline")
    assert [(trial.state, trial.attempts) for trial in snapshot.trials] == [
        (TrialState.COMPLETED, 1)
    ] * 5
    assert 0 < snapshot.seconds < 600
    assert all(
        0 <= trial.seconds < 600 and 0 <= trial.reports[0].seconds < 600
        for trial in snapshot.trials
    )
    assert ledger.snapshot("test").state == "finished"


def test_an_interrupted_controller_lets_the_next_one_suggest_the_same(tmp_path: Path) -> None:
    """A sweep that is killed twice proposes the same as one that is not killed."""
    ledger = Ledger.open(tmp_path, create=True)
    for name in ("whole", "killed"):
        ledger.create_sweep(make_spec(name, trials=6, suggester="sobol"))
    sweeps.run(ledger.spec("whole"), ledger=ledger, objective=quick, dispatcher="inline")
    for skip in (2, 1):
        child = soak_sweeps.launch(tmp_path, "killed", "ended", skip)
        child.join()
        assert child.exitcode == -signal.SIGKILL
    sweeps.run(
        ledger.spec("killed"), ledger=ledger, objective=quick, dispatcher="inline", resume=True
    )
    assert [t.params for t in ledger.trials("killed")] == [t.params for t in ledger.trials("whole")]
    assert max(trial.attempts for trial in ledger.trials("killed")) >= 2
