"""The initial design."""

from __future__ import annotations

from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from automl.suggesters.bayes import BayesSuggester
from automl.suggesters.bayes.policy import Policy
from search_spaces import Choice, Float, Int, Space


def test_the_design_covers_every_value():
    space = Space(Float("x", 0.0, 1.0), Choice("c", list("abcde")), Int("n", 1, 5))
    suggester, history = BayesSuggester(space, [Goal("loss")]), []
    for i in range(5):
        (params,) = suggester.suggest([], history)
        history.append(Trial(i, params, TrialState.RUNNING))
    assert len({t.params["c"] for t in history}) >= 4
    assert len({t.params["n"] for t in history}) >= 4
    assert len({int(t.params["x"] * 5) for t in history}) >= 4
    assert history[0].params == {"x": 0.5, "c": space.parameters["c"].middle(), "n": 3}


def test_the_middle_need_not_come_first():
    space = Space(Float("x", 0.0, 1.0), Float("y", 0.0, 1.0))
    goals, middle = [Goal("loss")], {"x": 0.5, "y": 0.5}
    assert BayesSuggester(space, goals).suggest([], []) == [middle]
    off = Policy(middle_first=False)
    assert BayesSuggester(space, goals, policy=off).suggest([], []) != [middle]
