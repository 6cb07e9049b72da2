"""The parameters that affect a metric."""

from __future__ import annotations

from automl.core.goals import Goal
from automl.suggesters.bayes.model.aspects import parameters
from search_spaces import Choice, Float, Space


def test_the_time_to_a_quality_depends_on_parameters_of_both():
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
