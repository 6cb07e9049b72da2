"""A surrogate of the user's own."""

from __future__ import annotations

import numpy as np
import torch
from botorch.models import SingleTaskGP

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from search_spaces import Choice, Float, Space


def test_a_surrogate_of_ones_own():
    space = Space(Float("x", 0.0, 1.0), Choice("c", ["a", "b"]))
    built = []

    def build(x: torch.Tensor, y: torch.Tensor) -> SingleTaskGP:
        built.append(len(y))
        return SingleTaskGP(x, y[:, None])

    def loss(params: dict) -> float:
        return (params["x"] - 0.3) ** 2 + (params["c"] == "b")

    points = space.sample(np.random.default_rng(0), 8)
    history = [Trial(i, p, TrialState.COMPLETED, {"loss": loss(p)}) for i, p in enumerate(points)]
    suggester = BayesSuggester(space, [Goal("loss")], surrogate=build)
    (params,) = suggester.suggest(history, [])
    assert built == [8]
    assert space.legal(params)
    assert suggester.diagnose(history)[0].count == 8
