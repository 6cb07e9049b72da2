"""What the report does not believe: models that predict nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import automl
from automl.core import parse_constraints
from automl.core.trial import Trial, TrialState
from automl.report.calibration import Calibration
from automl.report.conclusion import warnings
from automl.report.effects import insights_of
from automl.report.figures import draw
from automl.report.metric_models import fit_models
from automl.report.record import Record
from search_spaces import Float, Space

SPACE = Space(Float("lr", 1e-4, 1.0, log=True, default=0.1))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Losses below 0 that follow lr, memory that is noise."""
    options: dict[str, Any] = {
        "suggester": "random",
        "dispatcher": "inline",
        "store": str(tmp_path_factory.mktemp("runs")),
        "trials": 16,
    }
    result = automl.sweep(
        lambda trial: {"loss": float(np.log10(trial.params["lr"]) + 2) ** 2 - 9.0},
        SPACE,
        "minimize loss",
        **options,
    )
    rng = np.random.default_rng(0)
    trials = [_measured(t, 1e5 + 1e4 * rng.random()) for t in result.snapshot.trials]
    return Record.of(replace(result.snapshot, trials=trials))


def _measured(trial: Trial, peak: float) -> Trial:
    return replace(trial, metrics={**trial.metrics, "seconds": 0.1, "peak_memory_bytes": peak})


def test_a_model_that_predicts_nothing_has_no_importances(record: Record) -> None:
    insights = insights_of(record)
    believed = {one.model.metric: bool(one.effects) for one in insights}
    assert believed == {"loss": True, "peak_memory_bytes": False}
    assert not [line for line in warnings(record, insights) if "the model of" in line]
    spec = replace(record.spec, constraints=parse_constraints("peak_memory_bytes <= 1e9"))
    limited = replace(record, snapshot=replace(record.snapshot, spec=spec))
    (warning,) = [line for line in warnings(limited, insights) if "the model of" in line]
    assert "the model of peak_memory_bytes does not predict the trials that it has not" in warning
    for name in ("importance", "dependence"):
        panel = draw(name, record, insights)
        assert len(panel.figures) == 1
        assert "Not drawn: the model of peak_memory_bytes" in panel.caption
    assert "peak_memory_bytes: not believable" in draw("calibration", record, insights).caption


def test_a_rank_correlation_is_believed_if_it_is_significant() -> None:
    rng = np.random.default_rng(1)
    base = Calibration("loss", 0, 0.5, 0.9, 0.0, -1.0, 0.0)
    decisions = set()
    for count in (6, 9, 20, 60):
        for share in (0.0, 0.2, 0.5, 1.0):
            x = rng.standard_normal(count)
            y = share * x + (1 - share) * rng.standard_normal(count)
            found = spearmanr(x, y, alternative="greater")
            tested = replace(base, count=count, rank_correlation=float(found.statistic))
            assert tested.believable == (found.pvalue < 0.05)
            decisions.add(tested.believable)
    assert decisions == {True, False}
    assert not replace(base, count=20, rank_correlation=float("nan")).believable
    assert not replace(base, count=12, rank_correlation=-0.06).believable


def test_a_stopped_trial_does_not_tell_how_long_a_whole_one_takes(record: Record) -> None:
    trials = [
        replace(trial, metrics={**trial.metrics, "seconds": 60.0 + number})
        if number % 2
        else replace(trial, metrics={**trial.metrics, "seconds": 1.0}, state=TrialState.STOPPED)
        for number, trial in enumerate(record.trials)
    ]
    models = fit_models(Record.of(replace(record.snapshot, trials=trials)))
    (seconds,) = (model for model in models if model.metric == "seconds")
    assert seconds.observed.min() > 50
