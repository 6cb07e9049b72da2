"""Lack of memory, predicted from measured peaks."""

from __future__ import annotations

import numpy as np

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes.model.data import TrialReader
from automl.suggesters.bayes.model.failures import FailureClassifier, FailurePosterior
from automl.suggesters.bayes.model.latent_threshold import LatentThreshold
from automl.suggesters.bayes.model.surrogates import Surrogates
from automl.suggesters.bayes.policy import Policy
from search_spaces import Choice, Float, Space


def failures_of(
    space: Space, history: list[Trial], policy: Policy | None = None
) -> FailurePosterior:
    goals = [Goal("loss")]
    data = TrialReader(space, goals, [])(history)
    return Surrogates(space, goals, (), 0, policy=policy or Policy()).failures(data)


def test_measured_memory_predicts_failures():
    space = Space(Float("size", 0.0, 10.0), Float("other", 0.0, 1.0), Float("third", 0.0, 1.0))
    history = []
    for i, params in enumerate(space.sample(np.random.default_rng(1), 24)):
        peak = int(1e6 * 2 ** params["size"] * (1 + params["other"]))
        fits = peak < 2e8
        state = TrialState.COMPLETED if fits else TrialState.FAILED
        metrics = {"loss": -params["size"]} if fits else {}
        failure = None if fits else "out_of_memory"
        history.append(
            Trial(i, params, state, metrics, failure, peak_memory_bytes=peak if fits else None)
        )
    failures = failures_of(space, history)
    assert isinstance(failures.parts[0], LatentThreshold)
    off = failures_of(space, history, Policy(memory_threshold=False))
    assert isinstance(off.parts[0], FailureClassifier)
    test = space.sample(np.random.default_rng(2), 200)
    fits = np.array([1e6 * 2 ** p["size"] * (1 + p["other"]) < 2e8 for p in test])
    likely = failures.log_probability(space.encode(test)).exp().numpy() > 0.5
    assert (likely == fits).mean() > 0.85  # 0.97 on average over histories


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
