"""Options that failed for other reasons."""

from __future__ import annotations

import numpy as np
import pytest

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.candidates import CandidateSampler
from automl.suggesters.bayes.forced_exploration import best_with_each_option, forced_option
from automl.suggesters.bayes.model.data import TrialData, TrialReader
from automl.suggesters.bayes.policy import Policy
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


def data_of(space: Space, trials: list[Trial], *metrics: str) -> TrialData:
    return TrialReader(space, [Goal(metric) for metric in metrics or ("loss",)], [])(trials)


def chosen(trials: list[Trial], number: int, *, stalled: bool = False) -> object:
    sampler, data = CandidateSampler(Domain(SPACE)), data_of(SPACE, trials)
    found = forced_option(sampler, data, np.empty((0, 4)), number, stalled=stalled)
    return None if found is None else sampler.parameters[found[0]].from_unit(found[1])


def test_an_option_of_which_all_trials_failed_is_tried_again_until_it_is_hopeless():
    assert chosen(history(2), 24) == "c"
    assert chosen(history(2), 27) is None, "now and then only"
    assert chosen(history(2), 27, stalled=True) == "c", "more often if nothing else helps"
    assert chosen(history(2), 12) is None, "two of twelve are a fair share"
    assert chosen(history(3), 30) is None, "three failures are enough"
    assert chosen([*history(2), trial(24, params(0.5, "c"))], 30, stalled=True) is None
    assert chosen([t for t in history(2) if t.failure is None], 24) is None, (
        "where nothing fails nothing forbids it"
    )


@pytest.mark.parametrize("ordered", [False, True])
def test_options_of_ordered_and_binary_choices_are_not_forced(ordered):
    space = Space(
        Choice("patch", [4, 8, 16], ordered=ordered),
        Choice("fast", [False, True]),
        Float("x", 0.0, 1.0),
    )
    tried = [{"patch": [8, 16][i % 2], "fast": False, "x": 0.01 * i} for i in range(23)]
    trials = [Trial(i, p, TrialState.COMPLETED, {"loss": p["x"]}) for i, p in enumerate(tried)]
    failed = {"patch": 4, "fast": True, "x": 0.5}
    trials.append(Trial(23, failed, TrialState.FAILED, failure="crashed"))
    sampler, data = CandidateSampler(Domain(space)), data_of(space, trials)
    found = forced_option(sampler, data, np.empty((0, 3)), 24, stalled=True)
    if ordered:
        assert found is None
        return
    assert found is not None
    assert (found[0], space.parameters["patch"].from_unit(found[1])) == (0, 4)


def test_only_the_option_changes_in_a_successful_configuration():
    suggester = BayesSuggester(SPACE, [Goal("loss")])
    trials = history(2)
    (found,) = suggester.suggest(trials, [])
    assert found["mode"] == "c"
    assert any(
        t.failure is None
        and t.params["fast"] == found["fast"]
        and abs(t.params["x"] - found["x"]) < 1e-9
        for t in trials
    )


def test_the_best_trial_with_each_other_option_is_a_base_too():
    layouts = ["rows", "columns", "tiles"]
    space = Space(
        Choice("backend", ["a", "b", "c"]), Choice("layout", layouts), Float("x", 0.0, 1.0)
    )

    def run(number: int, layout: str, x: float) -> Trial:
        config = {"backend": "ab"[number % 2], "layout": layout, "x": x}
        if x > 0.8:
            return Trial(number, config, TrialState.FAILED, failure="crashed")
        both = {"first": x + layouts.index(layout), "second": 2 * x}
        return Trial(number, config, TrialState.COMPLETED, both)

    trials = [
        run(i, layout, x)
        for i, (layout, x) in enumerate((a, b) for b in (0.9, 0.5, 0.3) for a in layouts[:2])
    ]
    found = space.decode(
        best_with_each_option(
            CandidateSampler(Domain(space)), data_of(space, trials, "first", "second"), 0
        )
    )
    assert [(params["layout"], round(params["x"], 6)) for params in found] == [
        ("rows", 0.3),
        ("columns", 0.3),
    ]


def test_the_rule_can_be_turned_off():
    off = BayesSuggester(SPACE, [Goal("loss")], policy=Policy(retry_failed_options=False))
    trials = history(2)
    (found,) = off.suggest(trials, [])
    assert all(abs(t.params["x"] - found["x"]) > 1e-9 for t in trials), (
        "more than an option changes"
    )
