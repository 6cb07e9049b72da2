"""Trials from elsewhere: tables, studies of Optuna, sweeps. Reading them changes nothing."""

import math
import sys
from contextlib import closing
from pathlib import Path

import optuna
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # report_sweeps.py

from report_sweeps import SPACE, write_sweep

from automl.core.goals import parse_goals
from automl.errors import UsageError
from automl.integrations.optuna_view import study
from automl.ledger import Ledger
from automl.sweeps import load, sweep
from automl.workflows.beginning import ImportedTrials, read
from search_spaces import Choice, Float, Int, Space


def imported(source: str, store: str = "sqlite://", space: Space = SPACE) -> ImportedTrials:
    with closing(Ledger.open(store)) as ledger:
        return read(source, space, parse_goals("minimize loss"), ledger)


@pytest.mark.parametrize(
    ("source", "lack"),
    [
        ("postgresql://me:secret@h/db", "has no #NAME"),
        ("postgresql:/me:secret@h/db#s", "has no ://"),
        ("secret#s", "has no ://"),
    ],
)
def test_a_mistyped_url_of_a_study_is_not_repeated(source: str, lack: str) -> None:
    with pytest.raises(UsageError, match=f"such as optuna:sqlite:.* {lack}") as caught:
        imported(f"optuna:{source}")
    assert "secret" not in str(caught.value)


def test_a_study_is_read_without_a_change_to_its_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file"):
        imported(f"optuna:sqlite:///{tmp_path}/missing.db#study")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "a study.db"
    made = optuna.create_study(study_name="s", storage=f"sqlite:///{file}")
    made.enqueue_trial({"lr": 0.01})
    made.optimize(lambda trial: math.log(trial.suggest_float("lr", 1e-5, 1e-1)), n_trials=2)
    before = file.read_bytes()
    found = imported(f"optuna:sqlite:///{file}#s")
    assert len(found.trials) == 2
    assert found.trials[0].params == {**SPACE.default(), "lr": 0.01}  # type: ignore[dict-item]
    assert file.read_bytes() == before


def test_optuna_reads_a_sweep_and_a_sweep_is_read(tmp_path: Path) -> None:
    store = write_sweep(tmp_path, 30, constraints=["size <= 2000"])
    found, result = study("toy", store), load("toy", store)
    assert found.best_trial.number == result.best.number
    failed = [trial.number for trial in result.trials if trial.state == "failed"]
    assert [t.number for t in found.trials if t.state.name == "FAIL"] == failed
    assert found.trials[0].params == dict(result.trials[0].params)
    assert len(found.trials[0].intermediate_values) == 6
    assert set(found.trials_dataframe()["params_optimizer"].dropna()) == {"sgd", "adam"}
    with pytest.raises(UsageError, match="no sweep named 'absent'"):
        study("absent", store)
    assert len(imported("sweep:toy", store).trials) == 30


def test_a_study_in_a_database_keeps_lists(tmp_path: Path) -> None:
    space = Space(Choice("widths", [(64, 32), (64,), (1.5, None)]), Float("x", 0, 1, default=0.5))
    own = sweep(
        lambda trial: 1.0,
        space,
        "minimize loss",
        trials=3,
        store=tmp_path,
        dispatcher="inline",
        progress=False,
        suggester="random",
    )
    url = f"sqlite:///{tmp_path}/theirs.db"
    study("sweep", tmp_path, storage=optuna.storages.RDBStorage(url))
    assert [trial.params for trial in imported(f"optuna:{url}#sweep", space=space).trials] == [
        trial.params for trial in own.trials
    ]


CSV = """\
lr,batch_size,optimizer,momentum,layout,loss,note,state
0.001,64,adam,,separate,0.5,good,
0.01,32,sgd,0.9,separate,0.7,,completed
5.0,32,adam,,separate,0.7,too fast,
0.001,16,adam,,separate,,unfinished,
0.001,NaN,adam,NA,separate,0.4,{huge},PRUNED
0.001,16,adam,,separate,0.3,so far,RUNNING
0.001,16,adam,nan,separate,,,failed
""".replace("{huge}", "9" * 400)


def test_trials_of_a_csv_file_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text(CSV)
    found = imported(str(file))
    assert [trial.metrics.get("loss") for trial in found.trials] == [0.5, 0.7, 0.4, None]
    assert [trial.failure or trial.stopped for trial in found.trials[1:]] == [0, 1, "crashed"]
    assert found.trials[1].params == {
        "lr": 0.01, "batch_size": 32, "optimizer": "sgd", "momentum": 0.9, "layout": "separate"
    }  # fmt: skip
    assert found.left_out == {"outside of the space": 1, "without loss": 2}
    larger = Space(*SPACE.parameters.values(), Int("new", 0, 9), Int("one", 1, 1))
    assert imported(str(file), space=larger).left_out == {**found.left_out, "without new": 4}
    file.write_text("lr,loss\nfast,1\n")
    with pytest.raises(UsageError, match="line 2: lr must be a number, got 'fast'"):
        imported(str(file))
