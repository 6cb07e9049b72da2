"""Choices that failed for other reasons, and the front of several goals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.acquisition.hypervolume import (
    expected_hypervolume,
    front,
    reference_point,
)
from automl.suggesters.bayes.forced_exploration import leaders, neglected
from automl.suggesters.bayes.model.aspects import parameters
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


def chosen(trials: list[Trial], number: int, *, stalled: bool = False):
    suggester = BayesSuggester(SPACE, [Goal("loss")])
    found = neglected(
        suggester.search.lattice,
        suggester._collect(trials),
        np.empty((0, 4)),
        number,
        stalled=stalled,
    )
    return found and (
        SPACE.parameters[list(SPACE.parameters)[found.column]].from_unit(found.value),
        found.in_vain,
    )


def test_a_choice_of_which_all_trials_failed_is_tried_again_until_it_is_hopeless():
    assert chosen(history(2), 24) == ("c", True)
    assert chosen(history(2), 25) is None, "now and then only"
    assert chosen(history(2), 12) is None, "two of twelve are a fair share"
    assert chosen(history(3), 30) is None, "three failures are enough"
    succeeded = [*history(2), trial(24, params(0.5, "c"))]
    assert chosen(succeeded, 30) is None
    assert chosen(succeeded, 30, stalled=True) == ("c", False), (
        "hardly tried, where nothing else helps"
    )
    assert chosen([t for t in history(2) if t.failure is None], 24) is None, (
        "where nothing fails nothing forbids it"
    )


@pytest.mark.parametrize("ordered", [False, True])
def test_neither_ordered_choices_nor_binary_ones_are_neglected(ordered):
    space = Space(
        Choice("patch", [4, 8, 16], ordered=ordered),
        Choice("fast", [False, True]),
        Float("x", 0.0, 1.0),
    )
    suggester = BayesSuggester(space, [Goal("loss")])
    tried = [{"patch": [8, 16][i % 2], "fast": False, "x": 0.01 * i} for i in range(24)]
    trials = [Trial(i, p, TrialState.COMPLETED, {"loss": p["x"]}) for i, p in enumerate(tried)]
    data = suggester._collect(trials)
    found = neglected(suggester.search.lattice, data, np.empty((0, 3)), 24, stalled=True)
    if ordered:
        assert found is None
        return
    assert (found.column, found.in_vain) == (0, False)
    assert space.parameters["patch"].from_unit(found.value) == 4


def test_only_the_choice_is_changed_of_a_configuration_that_succeeded():
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


def test_the_best_with_each_option_of_the_other_choices_is_worth_a_change_too():
    layouts = ["rows", "columns", "tiles"]
    space = Space(
        Choice("backend", ["a", "b", "c"]), Choice("layout", layouts), Float("x", 0.0, 1.0)
    )
    suggester = BayesSuggester(space, [Goal("first"), Goal("second")])

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
    found = space.decode(leaders(suggester.search.lattice, suggester._collect(trials), 0))
    assert [(params["layout"], round(params["x"], 6)) for params in found] == [
        ("rows", 0.3),
        ("columns", 0.3),
    ]


def test_nothing_is_changed_where_that_was_tried():
    suggester = BayesSuggester(SPACE, [Goal("loss")])
    search, rng = suggester.search, np.random.default_rng(0)
    base, column = SPACE.encode([params(0.5, "a")]), list(SPACE.parameters).index("fast")
    value = SPACE.parameters["fast"].to_unit(True)

    def flat(unit):
        return torch.zeros(len(unit), dtype=torch.float64)

    assert search.changed(flat, base, set(), rng, (column, value)) == params(0.5, "a", True)
    assert (
        search.changed(flat, base, {SPACE.key(params(0.5, "a", True))}, rng, (column, value))
        is None
    )
    assert search.changed(lambda unit: flat(unit) - 1e3, base, set(), rng, (column, value)) is None


@pytest.mark.parametrize("goals", [2, 3])
def test_front_is_what_no_other_row_dominates(goals):
    losses = np.random.default_rng(goals).integers(0, 6, (60, goals)).astype(float)
    expected = [
        i
        for i, row in enumerate(losses)
        if not any(
            (other <= row).all() and ((other < row).any() or j < i)
            for j, other in enumerate(losses)
            if j != i
        )
    ]
    assert front(losses).tolist() == expected
    assert front(losses[:0]).tolist() == []


def test_what_joins_the_front_is_progress_and_each_of_it_is_looked_around():
    goals = [Goal("first"), Goal("second")]
    space = Space(Float("x", 0.0, 1.0))
    suggester = BayesSuggester(space, goals)

    def both(number: int, x: float, more: float = 0.0) -> Trial:
        return Trial(
            number, {"x": x}, TrialState.COMPLETED, {"first": x + more, "second": 1 - x + more}
        )

    trials = [both(0, 0.2), both(1, 0.8), both(2, 0.5), both(3, 0.55, 0.5), both(4, 0.1, 0.5)]
    data = suggester._collect(trials)
    surrogates = suggester.surrogates_
    assert surrogates.last_progress(data) == 2, (
        "neither of the last two, the best of the first goal is trial 0"
    )
    leaders = [surrogates.best_rows(suggester._collect(trials[:n]))[0] for n in (3, 4, 5)]
    assert sorted(leaders) == [0, 1, 2]


def test_a_short_front_gains_more_by_a_longer_end_than_by_another_point_of_it():
    losses = np.array([[0.0, 1.0], [0.1, 0.9], [1.5, 1.4], [0.9, 1.8]])
    rows = front(losses)
    assert rows.tolist() == [0, 1]
    reference = reference_point(losses, rows)
    assert (reference >= losses.max(0)).all()
    candidates = torch.tensor([[0.05, 0.95], [1.0, 0.2]])
    moments = [(candidates[None, :, g], torch.full((1, 2), 1e-3)) for g in range(2)]
    inside, beyond = expected_hypervolume(
        torch.from_numpy(losses[rows]), torch.from_numpy(reference), moments
    )
    assert beyond > 100 * inside > 0
    single = reference_point(losses[:1], np.array([0]))
    assert (single > losses[0]).all(), "of one trial too"


def test_under_noise_progress_is_what_the_surrogate_makes_of_it():
    """Losses fall with x, but for noise; an early one was lucky."""
    suggester, rng = (
        BayesSuggester(Space(Float("x", 0.0, 1.0)), [Goal("loss")]),
        np.random.default_rng(0),
    )
    x = np.linspace(0.0, 0.9, 30)
    losses = 2.0 - 2.0 * x + 0.3 * rng.standard_normal(30)
    losses[10] = -0.5
    trials = [
        Trial(i, {"x": float(a)}, TrialState.COMPLETED, {"loss": float(b)})
        for i, (a, b) in enumerate(zip(x, losses, strict=True))
    ]
    data = suggester._collect(trials)
    smoothed = suggester.surrogates_.fit(data).smoothed(len(data))
    assert suggester.surrogates_.last_progress(data) == 10
    assert suggester.surrogates_.last_progress(data, smoothed) > 20


def test_the_time_to_a_quality_depends_on_what_affects_either():
    space = Space(
        Float("rate", 0.0, 1.0, affects={"quality"}),
        Choice("layout", ["slow", "fast"], affects={"speed"}),
        Choice("offload", [False, True], affects={"memory"}),
    )
    assert parameters(space, Goal("seconds_to_target").aspects) == ("rate", "layout")
    assert parameters(space, Goal("time_to_accuracy").aspects) == ("rate", "layout")
    assert parameters(space, Goal("seconds_per_step").aspects) == ("layout",)
    assert parameters(space, Goal("accuracy").aspects) == ("rate",)
    assert parameters(space, Goal("accuracy", within=60.0).aspects) == ("rate", "layout")
