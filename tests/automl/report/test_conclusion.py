"""What is recommended, beside the trial that was observed to be the best."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import automl
from automl.cli import cli
from automl.core.text import number
from automl.core.trial import ReportLog, Trial, TrialState
from automl.report.conclusion import certainty
from automl.report.effects import insights_of
from automl.report.metric_models import fit_goal
from automl.report.recommendation import recommended
from automl.report.record import Record

SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}


def truth(x: float, y: float) -> float:
    return 4 * (x - 0.6) ** 2 + (y - 0.3) ** 2


def swept(store: Path, noise: float) -> automl.Result:
    rng = np.random.default_rng(0)
    return automl.sweep(
        lambda trial: {"loss": truth(**trial.params) + noise * rng.normal()},
        SPACE,
        "minimize loss",
        suggester="random",
        dispatcher="inline",
        store=str(store),
        trials=60,
        seed=0,
        progress=False,
    )


def test_under_noise_the_luckiest_trial_is_not_recommended(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.3)
    lucky, advice = result.best, result.recommended
    assert lucky.number not in advice.trials
    assert truth(**advice.params) < truth(**lucky.params) / 2
    assert advice.interval is not None
    assert advice.interval[0] < truth(**advice.params) < advice.interval[1]
    assert advice.interval[0] < advice.mean < advice.interval[1]
    assert (advice.runs, len(advice.trials)) == (1, 1)
    words = ["best", result.name, "--store", str(tmp_path)]
    shown = CliRunner().invoke(cli, words).output
    assert shown.startswith(f"Recommended: {advice}"), shown
    assert f"trial {lucky.number} has the best value" in shown
    own = number(result.trials[advice.trials[0]].value or 0.0)
    assert f"trial {advice.trials[0]} itself reached {own}" in shown.replace("\n", " ")
    printed = json.loads(CliRunner().invoke(cli, [*words, "--json"]).output)
    assert printed["number"] == lucky.number
    assert printed["recommended"] == json.loads(json.dumps(advice.to_dict()))
    record = Record.of(result.snapshot)
    text = certainty(record, insights_of(record))
    assert f"It expects more of trial {advice.trials[0]}: " in text


def test_without_noise_both_are_the_same(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.0)
    assert result.recommended.trials == (result.best.number,)
    assert result.recommended.mean == pytest.approx(result.best.value, abs=0.01)
    record = Record.of(result.snapshot)
    assert "expects more" not in certainty(record, insights_of(record))


def test_without_a_believable_model_it_is_the_observed_best(tmp_path: Path) -> None:
    result = swept(tmp_path, 100.0)
    advice = result.recommended
    assert advice.trials == (result.best.number,)
    assert (advice.mean, advice.interval) == (result.best.value, None)


def test_what_was_stopped_early_counts_in_no_model(tmp_path: Path) -> None:
    result = swept(tmp_path, 0.0)

    def stopped(trial: Trial, loss: float) -> Trial:
        metrics = {"loss": loss}
        return replace(trial, state=TrialState.STOPPED, reports=ReportLog(), metrics=metrics)

    trials = [stopped(t, 3.0) if t.number % 2 else t for t in result.trials]
    record = Record.of(replace(result.snapshot, trials=tuple(trials), values={}))
    model, advice = fit_goal(record), recommended(record)
    assert model is not None
    assert all(trial.number % 2 == 0 for trial in model.trials)
    best = record.snapshot.best
    assert best is not None
    assert advice is not None
    assert (advice.trials, advice.mean) == ((best.number,), pytest.approx(best.value, abs=0.01))
    trials[1] = stopped(trials[1], -1.0)
    advice = recommended(Record.of(replace(result.snapshot, trials=tuple(trials), values={})))
    assert advice is not None
    assert (advice.trials, advice.mean, advice.interval) == ((1,), -1.0, None)


def test_the_runs_of_a_configuration_count_together() -> None:
    values = {0.2: [1.0, 1.2, 1.4], 0.6: [2.0], 0.9: [3.0]}
    optimizer = automl.Optimizer({"x": (0.0, 1.0)}, "minimize loss", suggester="random")
    with optimizer:
        assert optimizer.recommended is None
        for x, losses in values.items():
            for loss in losses:
                optimizer.add({"x": x}, {"loss": loss})
        advice = optimizer.recommended
    assert advice is not None
    assert (advice.params, advice.trials, advice.runs) == ({"x": 0.2}, (0, 1, 2), 3)
    assert advice.mean == pytest.approx(1.2)
