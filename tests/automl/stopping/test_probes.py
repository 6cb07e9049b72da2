"""Trials that are stopped by the speed and memory of their first steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.stopping import STOPPERS
from search_spaces import Float, Space

SPACE = Space(Float("rate", 0.0, 1.0, default=0.3), Float("pace", 0.5, 20.0, log=True, default=1.0))


def probed(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Two steps report the size alone; then a loss depends on the steps and the rate."""
    size = 10.0 * params["pace"]
    yield 2 * params["pace"], {"peak_memory_bytes": size}
    for step in range(1, 20):
        yield (
            params["pace"],
            {"loss": abs(params["rate"] - 0.6) + 1.0 / step, "peak_memory_bytes": size},
        )


def probes_only(result: Any) -> list[Any]:
    return [trial for trial in result.trials if trial.reports and "loss" not in trial.metrics]


@pytest.mark.parametrize("stopper", STOPPERS.names())
def test_a_trial_that_violates_a_memory_constraint_stops_at_its_probe(stopper: str) -> None:
    options: dict[str, Any] = {
        "workers": 3,
        "trials": 14,
        "suggester": "random",
        "stopper": stopper,
    }
    result = automl.simulate(
        probed, SPACE, "minimize loss", constraints="peak_memory_bytes <= 60", **options
    )
    large = [trial for trial in result.trials if trial.number and trial.params["pace"] > 6.0]
    assert large
    assert all(trial.state == "stopped" and len(trial.reports) == 1 for trial in large)
    assert all("peak_memory_bytes <= 60 must hold" in trial.message for trial in large)
    reasons = [note.message for note in result.decisions if note.trial == large[0].number]
    assert any(reason.startswith("probe: peak_memory_bytes is") for reason in reasons)
    assert result.best.params["pace"] <= 6.0


def test_a_trial_too_slow_for_its_time_stops_at_its_probe() -> None:
    options: dict[str, Any] = {"workers": 3, "trials": 30, "suggester": "random"}
    result = automl.simulate(probed, SPACE, "minimize loss within 12s", **options)
    late = probes_only(result)
    assert late
    assert all("steps in 12 s" in trial.message for trial in late)
    assert min(trial.params["pace"] for trial in late) > 1.5


def test_the_suggester_learns_the_pace_of_a_probe() -> None:
    from automl.core.goals import parse_goals
    from automl.suggesters.bayes.data import TrialReader

    result = automl.simulate(
        probed, SPACE, "minimize loss within 12s", workers=3, trials=30, suggester="random"
    )
    data = TrialReader(SPACE, parse_goals("minimize loss within 12s"), [])(result.trials)
    assert len(data) == len(result.trials)
    assert not data.failed.any()
    number = probes_only(result)[0].number
    assert data.curves[number].shape == (1, 3)
    assert data.curves[number][0, 1] > 0
