"""Seconds, bytes, memory thresholds and deadlines."""

from __future__ import annotations

import numpy as np

from automl.core.goals import Goal
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.suggesters.bayes.data import TrialReader
from automl.suggesters.bayes.quantities import LatentThreshold
from automl.suggesters.bayes.surrogates import FailurePosterior, Surrogates
from search_spaces import Choice, Float, Space


def failures_of(space: Space, history: list[Trial]) -> FailurePosterior:
    goals = [Goal("loss")]
    data = TrialReader(space, goals, [])(history)
    return Surrogates(space, goals, (), 0).failures(data)


def needs(params: dict[str, float]) -> int:
    """Bytes; a trial that needs 2e8 runs out of memory."""
    return int(1e6 * 2 ** params["size"] * (1 + params["other"]))


def test_measured_memory_predicts_failures():
    space = Space(Float("size", 0.0, 10.0), Float("other", 0.0, 1.0), Float("third", 0.0, 1.0))
    test = space.sample(np.random.default_rng(100), 200)
    fits = np.array([needs(params) < 2e8 for params in test])
    right = []
    for seed in range(3):
        history = []
        for i, params in enumerate(space.sample(np.random.default_rng(seed), 24)):
            peak = needs(params)
            if peak < 2e8:
                done, loss = TrialState.COMPLETED, {"loss": -params["size"]}
                history.append(Trial(i, params, done, loss, peak_memory_bytes=peak))
            else:
                history.append(Trial(i, params, TrialState.FAILED, {}, "out_of_memory"))
        failures = failures_of(space, history)
        assert isinstance(failures.parts[0], LatentThreshold)
        likely = failures.log_probability(space.encode(test)).exp().numpy() > 0.5
        right.append((likely == fits).mean())
    assert np.mean(right) > 0.95


def test_a_failure_needs_more_than_the_threshold():
    space = Space(Float("size", 0.0, 1.0), Choice("kind", ["plain", "greedy"]))
    rows = [
        ({"size": x, "kind": "plain"}, 10.0 ** (6 + x)) for x in np.linspace(0.0, 0.8, 9).tolist()
    ]
    history = [
        Trial(i, params, TrialState.COMPLETED, {"loss": 1.0}, peak_memory_bytes=int(peak))
        for i, (params, peak) in enumerate(rows)
    ]
    greedy = {"size": 0.2, "kind": "greedy"}
    history += [Trial(9, greedy, TrialState.FAILED, {}, "out_of_memory")]
    failures = failures_of(space, history)
    unit = space.encode([{"size": 0.22, "kind": "greedy"}, {"size": 0.22, "kind": "plain"}])
    greedy_fits, plain_fits = failures.log_probability(unit).exp().tolist()
    assert greedy_fits < 0.5 < 0.9 < plain_fits


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
    assert len(posterior.y) > len(history), "earlier reports are observations too"
    base = {"rate": 0.4, "kind": "b"}
    unit = TIMED.encode([{**base, "layout": "slow"}, {**base, "layout": "fast"}])
    mean = posterior.moments(posterior.encode(unit))[0].mean(0)
    truth = [timed(0, {**base, "layout": layout}).metrics["loss"] for layout in ("slow", "fast")]
    assert mean[1] > mean[0]
    np.testing.assert_allclose(posterior.transform.untransform(-mean)[0], truth, rtol=0.2)
