"""The trial that is expected to be the best, beside the one that was observed to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import automl
from automl.report.conclusion import certainty
from automl.report.effects import insights_of
from automl.report.record import Record

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def truth(x: float, y: float) -> float:
    return 4 * (x - 0.6) ** 2 + (y - 0.3) ** 2


def swept(store: Path, noise: float) -> automl.Result:
    rng = np.random.default_rng(3)
    return automl.sweep(
        lambda trial: {"loss": truth(**trial.params) + noise * rng.normal()},
        SPACE,
        "minimize loss",
        suggester="random",
        dispatcher="inline",
        store=str(store),
        trials=40,
        seed=1,
        progress=False,
    )


def test_under_noise_the_expected_best_is_not_the_luckiest_trial(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.3)
    lucky, expected = result.best, result.expected_best
    assert expected.number != lucky.number
    assert truth(**expected.params) < truth(**lucky.params) / 2
    record = Record.of(result.snapshot)
    text = certainty(record, insights_of(record))
    assert f"It expects more of trial {expected.number}: " in text


def test_without_noise_both_are_the_same(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.0)
    assert result.expected_best.number == result.best.number
    record = Record.of(result.snapshot)
    assert "expects more" not in certainty(record, insights_of(record))


def test_without_a_believable_model_it_is_the_observed_best(tmp_path: Path) -> None:
    result = swept(tmp_path, 100.0)
    assert result.expected_best.number == result.best.number
