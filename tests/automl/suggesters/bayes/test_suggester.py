"""The default suggester as its users meet it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import automl
from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from benchmarks.suggesters.loop import recommended
from search_spaces import Choice, Float, Int, Space

ROOT = Path(__file__).parents[4]


def completed(number, params, **metrics) -> Trial:
    return Trial(number, params, TrialState.COMPLETED, metrics)


@pytest.mark.parametrize("seed", range(2))
def test_an_optimum_at_ends_of_ranges_is_reached(seed):
    space = Space(
        Float("a", 0.0, 1.0),
        Float("b", 1e-4, 1.0, log=True),
        Int("n", 1, 200),
        Float("x", 0.0, 1.0),
    )
    suggester, history = BayesSuggester(space, [Goal("loss")], seed=seed), []
    for i in range(20):
        (p,) = suggester.suggest(history, [])
        value = p["a"] - 0.3 * np.log10(p["b"]) - 0.005 * p["n"] + (p["x"] - 0.3) ** 2
        history.append(completed(i, p, loss=float(value)))
    best = min(history, key=lambda trial: trial.metrics["loss"]).params
    assert (best["a"], best["b"], best["n"]) == (0.0, 1.0, 200)
    assert abs(best["x"] - 0.3) < 0.15


def test_what_is_recommended_is_believed_to_be_best_not_a_lucky_trial():
    space, rng = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)), np.random.default_rng(2)
    points = [{"x": float(x), "y": float(y)} for x, y in rng.random((25, 2))]
    points[3] = {"x": 0.1, "y": 0.15}
    losses = [
        4 * ((p["x"] - 0.7) ** 2 + (p["y"] - 0.7) ** 2) + 0.2 * rng.standard_normal()
        for p in points
    ]
    losses[3] = min(losses) - 0.3  # lucky, and far from the bottom of the bowl
    history = [completed(i, p, loss=v) for i, (p, v) in enumerate(zip(points, losses, strict=True))]
    found = recommended(BayesSuggester(space, [Goal("loss")], seed=0), history)
    assert abs(found["x"] - 0.7) < 0.3
    assert abs(found["y"] - 0.7) < 0.3


def test_the_design_covers_the_inside_of_ranges_and_every_option():
    space = Space(Float("x", 0.0, 1.0), Choice("c", list("abcde")), Int("n", 1, 5))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(5):
        (params,) = suggester.suggest([], history)
        history.append(Trial(i, params, TrialState.RUNNING))
    tried = [t.params for t in history]
    assert len({p["c"] for p in tried}) >= 4
    assert ({p["n"] for p in tried}, {int(p["x"] * 5) for p in tried}) == ({2, 3, 4}, {1, 2, 3})
    assert tried[0] == {"x": 0.5, "c": space.parameters["c"].middle(), "n": 3}
    assert len(suggester.suggest([], history, 9)) == 9
    failed = [Trial(t.number, t.params, TrialState.FAILED, failure="crashed") for t in history]
    assert {p["n"] for p in suggester.suggest(failed, [], 4)} & {1, 5}, "then whole ranges"


def test_a_constrained_front_extends_to_its_feasible_end():
    """A reference point from feasible trials alone would end the front at a width of about 30."""
    space = Space(
        Int("width", 4, 512), Int("batch", 8, 512, log=True), Float("rate", 1e-5, 1e-1, log=True)
    )
    optimizer = automl.Optimizer(
        space, ["minimize error", "minimize size"], constraints=["memory <= 800"], seed=0
    )
    for _ in range(32):
        trial = optimizer.ask()
        width, batch = trial.params["width"], trial.params["batch"]
        error = width**-0.5 + 0.05 * (np.log10(trial.params["rate"]) + 3) ** 2
        optimizer.tell(trial, {"error": error, "size": width, "memory": width * batch})
    assert max(trial.params["width"] for trial in optimizer.pareto) > 80


def test_the_initial_design_imports_no_torch(tmp_path: Path) -> None:
    """So the first trials of a sweep do not wait for it."""
    script = (
        "import sys, automl\n"
        "def objective(trial):\n"
        "    print('torch' in sys.modules)\n"
        "    return trial.params['x']\n"
        "automl.sweep(objective, {'x': (0.0, 1.0)}, 'minimize loss', trials=6, seed=0,\n"
        "             dispatcher='inline', store='runs', progress=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False"] * 5 + ["True"]
