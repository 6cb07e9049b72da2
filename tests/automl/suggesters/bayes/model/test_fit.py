"""Fitting one Gaussian process."""

from __future__ import annotations

import numpy as np
import torch

from automl.suggesters.bayes.model.aspects import ALL
from automl.suggesters.bayes.model.fit import GPFitter
from automl.suggesters.bayes.policy import Policy
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))


def test_hyperparameters_stay_until_there_are_a_tenth_more_trials():
    unit = np.random.default_rng(0).random((48, 2))
    y = unit[:, 0] ** 2
    fitter = GPFitter.of_aspects(SPACE, ALL, 0, goal=True)
    first, same, later = (fitter.hyperparameters(unit[:n], y[:n]) for n in (44, 47, 48))
    assert torch.equal(first, same)
    assert not torch.equal(first, later)


def test_a_direction_can_be_turned_off():
    unit = np.random.default_rng(0).random((30, 2))
    y = (unit[:, 0] - unit[:, 1]) ** 2
    on, off = (
        GPFitter.of_aspects(SPACE, ALL, 0, policy, goal=True).fit(unit, y)[0].hyper.direction
        for policy in (Policy(), Policy(learned_direction=False))
    )
    assert on.abs().sum() > 0
    assert off.abs().sum() == 0
