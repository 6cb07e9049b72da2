"""A space that changes: what both spaces have, what changed, and what cannot change."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import spaces
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Choice, Float, Int, Space, SpaceError
from search_spaces.change import changes, joined

BEFORE = Space(
    Float("lr", 1e-3, 1e-1, log=True),
    Int("width", 16, 64, step=16),
    Choice("opt", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.9, when={"opt": "sgd"}),
    constraints=["width <= 48 or lr < 0.05"],
)
AFTER = Space(
    Float("lr", 1e-2, 1.0, log=True),
    Int("width", 32, 128, step=16),
    Choice("opt", ["adam", "lion"]),
    Float("momentum", 0.0, 0.99, when={"opt": "lion"}),
    Float("decay", 0.0, 1.0, default=0.1),
    constraints=["decay < 0.9"],
)


def test_every_earlier_and_every_coming_configuration_fits() -> None:
    space = joined(BEFORE, AFTER)
    rng = np.random.default_rng(0)
    for params in BEFORE.sample(rng, 200):
        fitted = space.complete(params)
        space.accept(fitted)
        assert fitted == {**params, "decay": 0.1}, "an earlier trial has the default"
    for params in AFTER.sample(rng, 200):
        space.accept(params)
    assert repr(space) == repr(
        Space(
            Float("lr", 1e-3, 1.0, log=True),
            Int("width", 16, 128, step=16),
            Choice("opt", ["adam", "lion", "sgd"]),
            Float("momentum", 0.0, 0.99, when={"opt": ["lion", "sgd"]}),
            Float("decay", 0.0, 1.0, default=0.1),
        )
    )


@given(spaces(max_size=4), st.randoms(use_true_random=False))
def test_the_same_space_joins_to_itself(space: Space, random: object) -> None:
    assert joined(space, space, space.sample(np.random.default_rng(0), 3)) == space
    assert changes(space, space) == []


def test_steps_of_another_grid_are_given_up_and_ordered_numbers_stay_ordered() -> None:
    before = Space(
        Float("x", 0, 1, step=0.25),
        Int("n", 0, 9, step=3),
        Choice("b", [1, 4, 8], ordered=True),
        Choice("like", [1, (0, 1), 0.1 * 3, "2"], default=1),
    )
    after = Space(
        Float("x", 0.1, 1, step=0.25),
        Int("n", 1, 9),
        Choice("b", [2, 4], ordered=True),
        Choice("like", [True, (False, True), 0.3, 2]),
    )
    assert repr(joined(before, after)) == repr(
        Space(
            Float("x", 0, 1),
            Int("n", 0, 9),
            Choice("b", [1, 2, 4, 8], ordered=True),
            Choice("like", [True, (False, True), 0.3, 2, 1, (0, 1), "2"], default=1),
        )
    )


def test_what_changed_is_said() -> None:
    assert changes(BEFORE, AFTER) == [
        "Float('lr', 0.001, 0.1, log=True) became Float('lr', 0.01, 1, log=True)",
        "Int('width', 16, 64, step=16) became Int('width', 32, 128, step=16)",
        "Choice('opt', ['sgd', 'adam']) became Choice('opt', ['adam', 'lion'])",
        "Float('momentum', 0, 0.9, when={'opt': ['sgd']}) became "
        "Float('momentum', 0, 0.99, when={'opt': ['lion']})",
        "decay is new: Float('decay', 0, 1, default=0.1); earlier trials count as 0.1",
        "constraint decay < 0.9 was added",
        "constraint width <= 48 or lr < 0.05 was dropped",
    ]


def test_none_as_a_default_is_told_from_no_default() -> None:
    without, with_none = Space(Choice("c", [None, 1])), Space(Choice("c", [None, 1], default=None))
    (added,) = changes(without, with_none)
    assert added == "Choice('c', [None, 1]) became Choice('c', [None, 1], default=None)"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (Space(Int("n", 0, 1)), "x is gone from the space, and earlier trials have it; keep it"),
        (Space(Int("x", 0, 1), Int("n", 0, 1)), "x was of type float and is now of type int"),
        (
            Space(Float("x", 0, 1), Int("n", 0, 1), Float("y", 0, 1)),
            "y is new, and earlier trials had none: give it a default",
        ),
        (
            Space(Float("x", 0.1, 1, log=True), Int("n", 0, 1)),
            "x cannot have a log scale, since earlier trials may lie at 0.0",
        ),
    ],
)
def test_what_cannot_change_is_refused(after: Space, said: str) -> None:
    before = Space(Float("x", 0, 1), Int("n", 0, 1))
    with pytest.raises(SpaceError) as error:
        joined(before, after, [{"x": 0.5, "n": 1}])
    assert said in str(error.value)


def test_a_new_parameter_of_a_new_choice_needs_no_default() -> None:
    before = Space(Choice("opt", ["sgd"]), Float("x", 0, 1))
    after = Space(
        Choice("opt", ["sgd", "lion"]), Float("x", 0, 1), Float("beta", 0, 1, when={"opt": "lion"})
    )
    assert joined(before, after, [{"opt": "sgd", "x": 0.5}]) == after
