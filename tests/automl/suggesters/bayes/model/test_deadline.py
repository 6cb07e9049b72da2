"""A goal within a deadline."""

from __future__ import annotations

import numpy as np

from automl.core.goals import Goal
from automl.core.reports import ReportPoint
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes.model.data import TrialReader
from automl.suggesters.bayes.model.surrogates import Surrogates
from automl.suggesters.bayes.policy import Policy
from search_spaces import Choice, Float, Space

TIMED = Space(
    Float("rate", 0.0, 1.0, affects={"quality"}),
    Choice("layout", ["slow", "fast"], affects={"speed"}),
    Choice("kind", ["a", "b", "c"], affects={"speed"}),
)


def timed(number: int, params: dict) -> Trial:
    """Ten seconds of training; the layout decides how many steps fit."""
    pace = (0.1 if params["layout"] == "slow" else 0.02) * (1.5 if params["kind"] == "a" else 1.0)
    steps = [max(1, int(10 * share / pace)) for share in (0.2, 0.5, 1.0)]
    reports = tuple(
        ReportPoint(
            step, {"loss": 5 / (1 + 0.02 * step) + (params["rate"] - 0.4) ** 2}, step * pace
        )
        for step in steps
    )
    return Trial(number, params, TrialState.COMPLETED, dict(reports[-1].metrics), reports=reports)


def test_a_goal_within_a_deadline_is_composed():
    history = [timed(i, p) for i, p in enumerate(TIMED.sample(np.random.default_rng(0), 15))]
    goals = [Goal("loss", within=10.0)]
    data = TrialReader(TIMED, goals, [])(history)
    (posterior,) = Surrogates(TIMED, goals, (), 0).fit(data).goals
    assert len(posterior.model.y) > len(history), "earlier reports are observations too"
    base = {"rate": 0.4, "kind": "b"}
    unit = TIMED.encode([{**base, "layout": "slow"}, {**base, "layout": "fast"}])
    mean = posterior.model.predict(posterior.encoder(unit))[0].mean(0)
    truth = [timed(0, {**base, "layout": layout}).metrics["loss"] for layout in ("slow", "fast")]
    assert mean[1] < mean[0]
    np.testing.assert_allclose(posterior.transform.inverse(mean.numpy()), truth, rtol=0.2)


def test_the_composition_can_be_turned_off():
    history = [timed(i, p) for i, p in enumerate(TIMED.sample(np.random.default_rng(0), 15))]
    goals = [Goal("loss", within=10.0)]
    data = TrialReader(TIMED, goals, [])(history)
    surrogates = Surrogates(TIMED, goals, (), 0, policy=Policy(deadline_model=False))
    (posterior,) = surrogates.fit(data).goals
    assert len(posterior.model.y) == len(history)
