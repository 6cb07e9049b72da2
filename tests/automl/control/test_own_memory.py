"""The memory of a user's objective is predicted from its earlier trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from objectives import make_spec

import automl
from automl.control.memory_guard import MemoryGuard
from automl.control.own_memory import MIN_TRIALS, OwnMemory
from automl.core.resources import Resources
from automl.core.trial import Trial, TrialState
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Int("width", 8, 4096, log=True),
    Int("depth", 1, 8),
    Float("lr", 1e-4, 1e-1, log=True, affects={"quality"}),
    Choice("optimizer", ["sgd", "adam"]),
)
LIMIT = 200_000_000


def needed(params: Any) -> float:
    weights = params["depth"] * params["width"] ** 2
    return float(2e6 + 4 * weights * (4 if params["optimizer"] == "adam" else 2))


def ended(number: int, params: Any, peak: float) -> Trial:
    return Trial(number, params, TrialState.COMPLETED, peak_memory_bytes=int(peak))


@pytest.mark.parametrize("seed", [0, 1])
def test_what_cannot_fit_is_refused_and_nothing_else(seed: int) -> None:
    guard = MemoryGuard(make_spec(space=SPACE, resources=Resources(memory=LIMIT)))
    rng = np.random.default_rng(seed)
    refused = []
    for number, params in enumerate(SPACE.sample(rng, 60)):
        if guard.refusal(params, 1):
            refused.append(needed(params))
        elif needed(params) <= LIMIT:
            peak = needed(params) * np.exp(rng.normal(0.0, 0.05))  # measurements vary
            guard.observe(ended(number, params, peak))
    assert refused, "some were refused"
    assert min(refused) > LIMIT


def test_nothing_is_predicted_from_few_trials_or_far_below_the_limit() -> None:
    own = OwnMemory(make_spec(space=SPACE))
    largest = {"width": 4096, "depth": 8, "lr": 0.01, "optimizer": "adam"}
    params = SPACE.sample(np.random.default_rng(0), 40)
    small = sorted(params, key=needed)[:20]
    for number, one in enumerate(small[: MIN_TRIALS - 1]):
        own.observe(ended(number, one, needed(one)))
    assert own.at_least(largest, 1) is None, "too few"
    for number, one in enumerate(small):
        own.observe(ended(number, one, needed(one)))
    assert own.at_least(largest, 10**15) is None
    found = own.at_least(small[-1], 10**7)
    assert found is not None
    assert 0.5 * needed(small[-1]) < found < 1.1 * needed(small[-1])


def test_a_space_without_memory_has_no_surrogate() -> None:
    space = Space(Float("lr", 0.1, 1.0, affects={"quality"}))
    own = OwnMemory(make_spec(space=space))
    for number in range(MIN_TRIALS):
        own.observe(ended(number, {"lr": 0.1 + 0.1 * number}, 1e9))
    assert own.at_least({"lr": 0.2}, 1) is None


def allocate(trial: Any) -> dict[str, float]:
    kept = np.ones(trial.params["megabytes"] * 125_000)
    trial.report(step=1, loss=1.0)
    return {"loss": 1.0 / len(kept)}


def test_a_sweep_learns_what_does_not_fit(tmp_path: Path) -> None:
    result = automl.sweep(
        allocate,
        Space(Int("megabytes", 5, 800, log=True)),
        "minimize loss",
        trials=30,
        seed=1,
        suggester="random",
        dispatcher="local",  # in a process of its own: what else pytest holds must not count
        workers=1,
        resources={"memory": 100_000_000},
        store=tmp_path,
    )
    for trial in result.trials:
        too_large = trial.params["megabytes"] > 100
        assert trial.failure == ("out_of_memory" if too_large else None), trial.message
    messages = [trial.message for trial in result.trials if trial.failure]
    ran = [text for text in messages if text.startswith("the objective has used 0.")]
    refused = [text for text in messages if text.startswith("not dispatched: earlier trials show")]
    assert len(ran) + len(refused) == len(messages)
    assert refused
    assert refused[0].endswith("and there are 0.10 GB")
