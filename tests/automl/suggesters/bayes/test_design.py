"""The initial design."""

from __future__ import annotations

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.policy import Policy
from search_spaces import Choice, Float, Int, Space


def test_the_design_covers_the_inside_of_ranges_and_every_option():
    space = Space(Float("x", 0.0, 1.0), Choice("c", list("abcde")), Int("n", 1, 5))
    for inner, cells in (True, {1, 2, 3}), (False, {0, 1, 2, 3, 4}):
        policy = Policy(inner_design=inner)
        suggester, history = BayesSuggester(space, [Goal("loss")], policy=policy), []
        for i in range(5):
            (params,) = suggester.suggest([], history)
            history.append(Trial(i, params, TrialState.RUNNING))
        tried = [t.params for t in history]
        of_n, of_x = {p["n"] - 1 for p in tried}, {int(p["x"] * 5) for p in tried}
        assert len({p["c"] for p in tried}) >= 4
        assert of_n <= cells
        assert of_x <= cells
        assert min(len(of_n), len(of_x)) >= len(cells) - (not inner)
        assert tried[0] == {"x": 0.5, "c": space.parameters["c"].middle(), "n": 3}


def test_the_middle_need_not_come_first():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    goals, middle = [Goal("loss")], {"x": 0.5, "y": 0.5}
    assert BayesSuggester(space, goals).suggest([], []) == [middle]
    off = Policy(middle_first=False)
    assert BayesSuggester(space, goals, policy=off).suggest([], []) != [middle]
