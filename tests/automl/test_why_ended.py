"""A sweep says why it ended early, why nothing succeeded, and how it has understood a range."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.config import load
from automl.ledger import Ledger
from automl.workflows import steering
from search_spaces.plain import ambiguous


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
    assert "x: [0.0, 1.0] is a choice of two values; for the numbers between them" in said


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


def test_everything_that_reads_a_space_says_how_it_understood_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    automl.Optimizer({"x": (0, 1)}, "minimize loss")
    automl.simulate(lambda _: [(1.0, {"loss": 1.0})], {"x": (0, 1)}, "minimize loss", trials=1)
    said = capsys.readouterr().err
    assert said.count("x: (0, 1) is the whole numbers 0 and 1; for the numbers between") == 2
    config = tmp_path / "c.yaml"
    config.write_text("space: {x: [0.0, 1.0]}\ngoals: minimize loss\n")
    (note,) = load(config, objective=True).notes
    assert note.endswith(
        "a choice of two values; for the numbers between them write {low: 0.0, high: 1.0}"
    )


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ((0, 1), "x: (0, 1) is the whole numbers 0 and 1; for the numbers between them write"),
        ([1e-5, 0.1], "x: [1e-05, 0.1] is a choice of two values"),
        ({"low": 0, "high": 1}, "x: {'low': 0, 'high': 1} is the whole numbers 0 and 1"),
        ({"low": 0, "high": 1, "type": "int"}, ""),
        ((0, 8), ""),
        ((0.0, 1.0), ""),
        ([16, 32], ""),
        ([0.1, 0.2, 0.3], ""),
        (["a", "b"], ""),
    ],
)
def test_only_a_range_that_may_mean_something_else_is_explained(entry: Any, line: str) -> None:
    assert "".join(ambiguous({"x": entry})).startswith(line)
    assert bool(ambiguous({"x": entry})) is bool(line)


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
