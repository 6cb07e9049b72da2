"""The parameters that affect a metric."""

from __future__ import annotations

from automl.core.goals import Goal
from automl.suggesters.bayes.model.aspects import of_goal, parameters
from search_spaces import Choice, Float, Space


def test_the_time_to_a_quality_depends_on_parameters_of_both():
    space = Space(
        Float("rate", 0.0, 1.0, affects={"quality"}),
        Choice("layout", ["slow", "fast"], affects={"speed"}),
        Choice("offload", [False, True], affects={"memory"}),
    )
    assert parameters(space, of_goal(Goal("seconds_to_target"))) == ("rate", "layout")
    assert parameters(space, of_goal(Goal("time_to_accuracy"))) == ("rate", "layout")
    assert parameters(space, of_goal(Goal("seconds_per_step"))) == ("layout",)
    assert parameters(space, of_goal(Goal("accuracy"))) == ("rate",)
    assert parameters(space, of_goal(Goal("accuracy", within=60.0))) == ("rate", "layout")
