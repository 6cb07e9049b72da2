"""A sweep says why it ended early, and why nothing succeeded."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import automl
from automl.ledger import Ledger
from automl.workflows import steering


def sweep(
    objective: Any, space: Any, tmp_path: Path, trials: int = 8, **options: Any
) -> automl.Result:
    return automl.sweep(
        objective,
        space,
        "minimize loss",
        trials=trials,
        dispatcher="inline",
        suggester="sobol",
        store=tmp_path,
        **options,
    )


def test_a_space_without_more_configurations(tmp_path: Path, capfd: Any) -> None:
    result = sweep(lambda trial: trial.params["x"], {"x": [0.0, 1.0]}, tmp_path)
    words = "ended after 2 of 8 trials: every configuration of its space was tried"
    assert words in repr(result)
    said = capfd.readouterr().err
    assert words in said


def test_a_pin_that_leaves_one_configuration(tmp_path: Path, capfd: Any) -> None:
    space = {"kind": ["a", "b"], "more": ["c", "d"]}
    sweep(lambda trial: 1.0, space, tmp_path, trials=1, name="s")
    with closing(Ledger.open(str(tmp_path))) as ledger:
        steering.change(ledger, "s", {"space.kind": "a", "space.more": "d"})
    result = sweep(lambda trial: 1.0, space, tmp_path, name="s", resume=True)
    assert "within its limits was tried; the limits are on kind, more" in repr(result)
    assert "the limits are on kind, more" in capfd.readouterr().err


def test_without_a_success_the_cause_is_said(tmp_path: Path, capfd: Any) -> None:
    result = sweep(lambda trial: trial.params["y"], {"x": (0.0, 1.0)}, tmp_path)
    assert str(result).count("KeyError: 'y'") == 1
    assert "3 of 3 trials failed, 3 of them alike" in str(result)
    assert "ended after 3 of 8 trials)" in str(result)
    assert "KeyError: 'y'" in capfd.readouterr().err
    quiet = sweep(lambda trial: trial.params["y"], {"x": (0.0, 1.0)}, tmp_path, progress=False)
    assert len(quiet.trials) == 3
    assert capfd.readouterr().err == ""


def test_a_script_that_ends_before_torch_is_imported_ends_cleanly(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import automl\n"
        "space = {'x': (0.0, 1.0)}\n"
        "def objective(trial): return 'good'\n"
        "result = automl.sweep(objective, space, 'minimize loss', trials=6, workers=1)\n"
        "print(len(result.trials))\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "3\n"
    assert "Traceback" not in done.stderr, "an import that goes on at the end of the program"
