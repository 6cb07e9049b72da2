"""A sweep seen through Optuna, and trials from elsewhere as prior knowledge."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # report_sweeps.py

from report_sweeps import SPACE, write_sweep

from automl.core.goals import Goal
from automl.core.trial import TrialState
from automl.errors import UsageError
from automl.integrations.optuna_view import study
from automl.ledger import Ledger
from automl.sweeps import load
from automl.workflows import beginning


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_sweep(tmp_path_factory.mktemp("runs"), 30, constraints=["size <= 2000"])


def test_optuna_reads_a_sweep(runs: str) -> None:
    found = study("toy", runs)
    result = load("toy", runs)
    assert found.best_trial.number == result.best.number
    failed = [trial.number for trial in result.trials if trial.state is TrialState.FAILED]
    assert [t.number for t in found.trials if t.state.name == "FAIL"] == failed
    assert found.trials[0].params == dict(result.trials[0].params)
    assert len(found.trials[0].intermediate_values) == 6
    assert set(found.trials_dataframe()["params_optimizer"].dropna()) == {"sgd", "adam"}
    with pytest.raises(UsageError, match="no sweep named 'absent'"):
        study("absent", runs)


CSV = """\
lr,batch_size,optimizer,momentum,layout,loss,note
0.001,64,adam,,separate,0.5,good
0.01,32,sgd,0.9,separate,0.7,
5.0,32,adam,,separate,0.7,too fast
0.001,16,adam,,separate,,unfinished
"""


def test_trials_of_a_csv_file_are_imported(runs: str, tmp_path: Path) -> None:
    ledger = Ledger.open(runs, readonly=True)
    (tmp_path / "old.csv").write_text(CSV)
    found = beginning.read(str(tmp_path / "old.csv"), SPACE, [Goal("loss")], ledger)
    assert [trial.metrics["loss"] for trial in found.trials] == [0.5, 0.7]
    assert found.trials[1].params == {
        "lr": 0.01, "batch_size": 32, "optimizer": "sgd", "momentum": 0.9, "layout": "separate"
    }  # fmt: skip
    assert found.left_out == {"outside of the space": 1, "without loss": 1}
    (tmp_path / "bad.csv").write_text("lr,loss\nfast,1\n")
    with pytest.raises(UsageError, match="line 2: lr must be a number, got 'fast'"):
        beginning.read(str(tmp_path / "bad.csv"), SPACE, [Goal("loss")], ledger)
    ledger.close()


def test_trials_of_an_optuna_study_and_of_a_sweep_are_imported(runs: str, tmp_path: Path) -> None:
    ledger = Ledger.open(runs, readonly=True)
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/old.db", study_name="old")
    study.enqueue_trial({"lr": 0.01})
    study.optimize(lambda trial: math.log(trial.suggest_float("lr", 1e-5, 1e-1)), n_trials=2)
    source = f"optuna:sqlite:///{tmp_path}/old.db#old"
    found = beginning.read(source, SPACE, [Goal("loss")], ledger)
    assert len(found.trials) == 2
    assert found.trials[0].params == {**SPACE.default(), "lr": 0.01}  # type: ignore[dict-item]
    assert len(beginning.read("sweep:toy", SPACE, [Goal("loss")], ledger).trials) == 30
    ledger.close()
