"""What `automl.sweep` shows while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import automl


def objective(trial: Any) -> dict[str, float]:
    if trial.params["x"] == 2:
        raise ValueError("two is wrong")
    return {"loss": float(trial.params["x"])}


def run(folder: Path, **options: Any) -> Any:
    space = {"x": [3, 2, 1]}
    given = {"trials": 3, "suggester": "random", "dispatcher": "inline", "store": folder}
    return automl.sweep(objective, space, "minimize loss", **given, **options)


def test_without_a_terminal_each_trial_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("[")]
    assert out == ""
    assert len(lines) == 3
    for value in (1, 3):
        assert any(f"completed  loss {value}" in line and f"x={value}" in line for line in lines)
    assert any("failed  crashed  (ValueError: two is wrong)  x=2" in line for line in lines)


def test_false_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_figures_are_listed(tmp_path: Path) -> None:
    result = run(tmp_path, progress=False)
    for name in ("", "loss"):
        with pytest.raises(automl.UsageError, match="the figures are progress, parallel, pareto"):
            result.figure(name)
