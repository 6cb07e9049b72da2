"""The examples of CONTRIBUTING.md work as the one new file that they claim to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import blocks
from sources import ROOT

import automl
import automl.stopping
import automl.suggesters
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0, default=0.5))
EXAMPLES = {
    code.removeprefix("# ").partition(" in ")[0]: code
    for code in blocks(ROOT / "CONTRIBUTING.md", "python")
}


def add(monkeypatch: pytest.MonkeyPatch, folder: Path, package: Any, file: str) -> None:
    """Put an example into a folder that the package searches beside its own."""
    (folder / file).write_text(EXAMPLES[file])
    places = [*package.__path__, str(folder)]
    monkeypatch.setattr(package, "__path__", places)
    monkeypatch.setattr(package.__spec__, "submodule_search_locations", places)


def test_a_suggester_is_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch, tmp_path, automl.suggesters, "uniform.py")
    optimizer = automl.Optimizer(SPACE, "minimize loss", suggester="uniform")
    for _ in range(3):
        trial = optimizer.ask()
        optimizer.tell(trial, {"loss": trial.params["x"]})
    assert optimizer.best is not None


def test_a_stopping_rule_is_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def replay(params: dict[str, float]) -> Any:
        for step in range(1, 11):
            yield 1.0, {"loss": params["x"] / step}

    add(monkeypatch, tmp_path, automl.stopping, "behind.py")
    result = automl.simulate(
        replay, SPACE, "minimize loss", trials=20, suggester="random", stopper="behind"
    )
    assert any(len(trial.reports) < 10 for trial in result.trials)
