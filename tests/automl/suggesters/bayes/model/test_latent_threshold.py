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


def needs(params: dict[str, float]) -> int:
    """Bytes; a trial that needs 2e8 runs out of memory."""
    return int(1e6 * 2 ** params["size"] * (1 + params["other"]))


def test_measured_memory_predicts_failures():
    space = Space(Float("size", 0.0, 10.0), Float("other", 0.0, 1.0), Float("third", 0.0, 1.0))
    test = space.sample(np.random.default_rng(100), 200)
    fits = np.array([needs(params) < 2e8 for params in test])
    right = []
    for seed in range(6):
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
    off = failures_of(space, history, Policy(memory_threshold=False))
    assert isinstance(off.parts[0], FailureClassifier)


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
