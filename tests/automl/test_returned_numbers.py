"""With one goal an objective returns its value, however it is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl

SPACE = {"x": (0.0, 1.0)}


@pytest.mark.parametrize("dispatcher", ["inline", "local"])
@pytest.mark.parametrize("kind", [float, np.float32, torch.tensor])
def test_an_objective_returns_a_number(dispatcher: str, kind: Any, tmp_path: Path) -> None:
    result = automl.sweep(
        lambda trial: kind(trial.params["x"]),
        SPACE,
        "minimize loss",
        trials=2,
        workers=1,
        dispatcher=dispatcher,
        suggester="sobol",
        store=tmp_path,
    )
    assert result.best.value == pytest.approx(min(trial.params["x"] for trial in result.trials))
    assert result.best.metrics["loss"] == result.best.value


def test_a_replay_yields_numbers_and_returns_one() -> None:
    def replay(params: Any) -> Iterator[tuple[float, float]]:
        for step in range(3):
            yield 1.0, params["x"] + 1 / (step + 1)

    result = automl.simulate(replay, SPACE, "minimize loss", trials=3, suggester="sobol")
    assert result.best.value == pytest.approx(result.best.params["x"] + 1 / 3)
    assert len(result.best.reports) == 3
