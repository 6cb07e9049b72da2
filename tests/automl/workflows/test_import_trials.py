"""The address of a study: no password is shown, and nothing is made by reading."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import optuna
import pytest

from automl.core.goals import parse_goals
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.workflows.beginning import ImportedTrials, read
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0))


def imported(source: str) -> ImportedTrials:
    with closing(Ledger.open("sqlite://")) as ledger:
        return read(source, SPACE, parse_goals("minimize loss"), ledger)


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


def test_a_mistyped_path_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file"):
        imported(f"optuna:sqlite:///{tmp_path}/missing.db#study")
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_read_without_a_change_to_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a study.db"
    study = optuna.create_study(study_name="s", storage=f"sqlite:///{file}")
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=2)
    before = file.read_bytes()
    assert len(imported(f"optuna:sqlite:///{file}#s").trials) == 2
    assert file.read_bytes() == before
