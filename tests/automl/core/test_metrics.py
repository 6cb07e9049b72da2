"""Declared metrics, and the aspects that follow from them."""

from __future__ import annotations

import json

import pytest

import automl
from automl.core import Goal, SweepSpec, parse_constraints, parse_goals
from search_spaces import Float, Space
from workers.protocol import Metric

SPACE = Space(Float("x", 0.0, 1.0))
COST = Metric("cost", "minimize", "speed")


def spec(goals: str = "minimize cost", constraints: str = "cost <= 3") -> SweepSpec:
    return SweepSpec(
        "s", SPACE, parse_goals(goals), parse_constraints(constraints), metrics=(COST,)
    )


def test_goals_and_constraints_take_their_aspects_from_the_declaration() -> None:
    declared = spec()
    assert declared.goals[0].aspects == declared.constraints[0].aspects == {"speed"}
    assert declared.goals[0].declared == COST
    assert Goal("cost").aspects == {"quality"}, "without a declaration it is guessed"


def test_the_ledger_keeps_the_declarations() -> None:
    stored = json.loads(json.dumps(spec().to_dict()))
    assert SweepSpec.from_dict(stored).goals[0].declared == COST


def test_the_metrics_of_the_controller_are_always_declared() -> None:
    goal = spec("minimize seconds", "peak_memory_bytes <= 8e9")
    assert goal.goals[0].declared is not None
    assert goal.constraints[0].aspects == {"memory"}


@pytest.mark.parametrize(
    ("name", "aspects"),
    [
        ("accuracy", {"quality"}),
        ("latency_ms", {"speed"}),
        ("used_bytes", {"memory"}),
        ("seconds_to_target", {"quality", "speed"}),
    ],
)
def test_the_aspects_of_other_metrics_are_guessed_from_the_name(
    name: str, aspects: set[str]
) -> None:
    assert Goal(name).aspects == aspects


def test_within_a_time_quality_depends_on_speed() -> None:
    assert Goal("accuracy", within=60.0).aspects == {"quality", "speed"}
    assert Goal("used_bytes", within=60.0).aspects == {"memory"}


def test_an_objective_of_ones_own_declares_its_metrics() -> None:
    result = automl.simulate(
        lambda params: iter([(1.0, {"cost": params["x"]})]),
        SPACE,
        "minimize cost",
        trials=2,
        suggester="random",
        metrics=[automl.Metric("cost", "minimize", "speed")],
    )
    assert result.snapshot.goals[0].aspects == {"speed"}
