"""Options of a choice of which no trial succeeded."""

from __future__ import annotations

import numpy as np

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.candidates import CandidateSampler, untried_option
from automl.suggesters.bayes.suggester import Policy
from automl.suggesters.domain import Domain
from search_spaces import Choice, Float, Space

SPACE = Space(
    Float("x", 0.0, 1.0),
    Choice("mode", ["a", "b", "c"]),
    Choice("fast", [False, True]),
    Float("gap", 0.0, 1.0, when={"mode": "c"}),
)


def params(x: float, mode: str, fast: bool = False) -> dict:
    return {"x": x, "mode": mode, "fast": fast} | ({"gap": 0.5} if mode == "c" else {})


def trial(number: int, config: dict) -> Trial:
    """What has x > 0.8 fails, whatever its mode."""
    if config["x"] > 0.8:
        return Trial(number, config, TrialState.FAILED, failure="crashed")
    loss = (config["x"] - 0.6) ** 2 + {"a": 0.3, "b": 0.2, "c": 0.0}[config["mode"]]
    return Trial(number, config, TrialState.COMPLETED, {"loss": loss})


def history(failed_c: int, count: int = 24) -> list[Trial]:
    tried = [params(0.85 + 0.05 * i, "c") for i in range(failed_c)]
    rest = np.linspace(0.05, 0.78, count - failed_c)
    tried += [params(float(x), "ab"[i % 2], bool(i // 2 % 2)) for i, x in enumerate(rest)]
    return [trial(i, config) for i, config in enumerate(tried)]


def chosen(space: Space, trials: list[Trial], number: int) -> object:
    sampler = CandidateSampler(Domain(space))
    failed = np.array([t.failure is not None for t in trials])
    found = untried_option(sampler, space.encode([t.params for t in trials]), failed, number)
    return None if found is None else sampler.parameters[found[0]].from_unit(found[1])


def test_an_option_of_which_all_trials_failed_is_tried_until_it_is_hopeless():
    assert chosen(SPACE, history(2), 24) == "c"
    assert chosen(SPACE, history(2), 27) is None, "now and then only"
    assert chosen(SPACE, history(2), 12) is None, "two of twelve are a fair share"
    assert chosen(SPACE, history(3), 30) is None, "three failures are enough"
    assert chosen(SPACE, [*history(2), trial(24, params(0.5, "c"))], 30) is None
    without = [t for t in history(2) if t.failure is None]
    assert chosen(SPACE, without, 24) is None, "where nothing fails nothing forbids it"


def test_only_the_option_changes_in_a_successful_configuration():
    trials = history(2)
    for policy in (Policy(), Policy(options=False)):
        suggester = BayesSuggester(SPACE, [Goal("loss")], policy=policy)
        (found,) = suggester.suggest(trials, [])
        same = any(
            t.failure is None
            and t.params["fast"] == found["fast"]
            and abs(t.params["x"] - found["x"]) < 1e-9
            for t in trials
        )
        assert same == policy.options
        assert found["mode"] == "c" or not policy.options
