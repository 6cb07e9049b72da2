"""Reports of speed and memory that come before any of quality, and what is decided from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.stopping import STOPPERS
from search_spaces import Float, Space

SPACE = Space(Float("rate", 0.0, 1.0, default=0.3), Float("pace", 0.5, 20.0, log=True, default=1.0))


def probed(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Two steps tell the size and nothing else; then a loss that depends on the steps and on the rate."""
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
def test_what_breaks_a_bound_on_memory_is_not_trained(stopper: str) -> None:
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


def test_what_is_too_slow_for_the_deadline_is_not_trained() -> None:
    options: dict[str, Any] = {"workers": 3, "trials": 30, "suggester": "random"}
    result = automl.simulate(probed, SPACE, "minimize loss within 12s", **options)
    late = probes_only(result)
    assert late
    assert all("steps in 12 s" in trial.message for trial in late)
    assert min(trial.params["pace"] for trial in late) > 1.5


def test_a_trial_that_was_only_probed_teaches_its_pace() -> None:
    from automl.core.goals import parse_goals
    from automl.suggesters.bayes.model.data import TrialReader

    result = automl.simulate(
        probed, SPACE, "minimize loss within 12s", workers=3, trials=30, suggester="random"
    )
    data = TrialReader(SPACE, parse_goals("minimize loss within 12s"), [])(result.trials)
    assert len(data) == len(result.trials)
    assert not data.failed.any()
    number = probes_only(result)[0].number
    assert data.curves[number].shape == (1, 3)
    assert data.curves[number][0, 1] > 0
