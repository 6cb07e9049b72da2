"""`Space.accept` gives the form of the space to whatever comes in, or raises SpaceError."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from drawn import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import Choice, Float, Int, Space, SpaceError

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=2)
    | st.sampled_from([10**400, np.float32(0.1), np.int64(2), np.bool_(True), np.array([1, 2])]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)


@settings(max_examples=150, deadline=None)
@given(spaces(), st.integers(0, 99))
def test_every_form_of_a_configuration_is_the_same(space: Space, seed: int) -> None:
    for params in space.sample(np.random.default_rng(seed), 3):
        own = repr(params)
        texts = {name: space.parameters[name].text(value) for name, value in params.items()}
        assert repr(space.accept(params, whole=True)) == own
        assert repr(space.accept(json.loads(json.dumps(params)))) == own
        assert repr(space.accept(texts, text=True)) == own
        known = {n: np.asarray(v)[()] for n, v in params.items() if type(v) in (bool, int, float)}
        assert repr(space.accept({**params, **known})) == own


@settings(max_examples=150, deadline=None)
@given(spaces(), st.data())
def test_anything_is_accepted_for_good_or_refused(space: Space, data: st.DataObject) -> None:
    names = st.sampled_from([*space.parameters, "other"])
    given_ = data.draw(st.dictionaries(names, ANYTHING, max_size=4) | ANYTHING)
    for options in ({}, {"text": True}, {"surplus": True}, {"whole": True}):
        try:
            found = space.accept(given_, **options)
        except SpaceError:
            continue
        assert repr(space.accept(found, whole=True)) == repr(found)


@pytest.mark.parametrize(
    ("parameter", "value", "own"),
    [
        (Int("n", 0, 9), 2.0, 2),
        (Int("n", 0, 9), np.int64(2), 2),
        (Int("n", 0, 9), "2", 2),
        (Int("n", 0, 9), "2.0", 2),
        (Int("n", 0, 2**52), float(2**50), 2**50),
        (Float("x", 0, 1), 1, 1.0),
        (Float("x", 0, 1), "1e-1", 0.1),
        (Float("x", 0, 1), np.float32(0.3), 0.3),
        (Float("x", 0, 0.3), 0.1 * 3, 0.3),
        (Float("x", 0, 1, step=0.1), 0.1 * 3, 0.3),
        (Float("x", 0, 1, step=0.1), "0.30000000000000004", 0.3),
        (Choice("c", [1, 2]), 2.0, 2),
        (Choice("c", [1, 2]), "2.0", 2),
        (Choice("c", [1e-5, 1e-3]), "0.00001", 1e-5),
        (Choice("c", [1e-5, 1e-3]), "1E-05", 1e-5),
        (Choice("c", [0.3, 0.4]), 0.1 * 3, 0.3),
        (Choice("c", [True, False]), "TRUE", True),
        (Choice("c", [True, False]), "false", False),
        (Choice("c", [True, False]), np.bool_(False), False),
        (Choice("c", [None, "a"]), "null", None),
        (Choice("c", [(64, 32), (64,)]), [64, 32], (64, 32)),
        (Choice("c", [(64, 32), (64,)]), "[64,32]", (64, 32)),
        (Choice("c", [(64, 32), (64,)]), "(64,)", (64,)),
        (Choice("c", [(64, 32), (64,)]), np.array([64, 32]), (64, 32)),
    ],
)
def test_other_forms_of_a_value(parameter: Any, value: Any, own: Any) -> None:
    assert repr(parameter.accept(value)) == repr(own)


@pytest.mark.parametrize(
    ("first", "second"), [(True, 1), ("1", 1), ("None", None), ((1, 0), (True, False)), ("", None)]
)
def test_values_that_look_alike_are_different_choices(first: Any, second: Any) -> None:
    parameter = Choice("c", [first, second])
    for value in (first, second):
        assert repr(parameter.accept(value)) == repr(value)
        assert repr(parameter.accept(parameter.text(value), text=True)) == repr(value)
        assert repr(parameter.from_unit(parameter.to_unit(value))) == repr(value)
    child = Space(parameter, Float("x", 0, 1, when={"c": [second]}))
    assert child.active({"c": first}) == ("c",)
    assert child.active({"c": second}) == ("c", "x")
    assert {len(params) for params in child.sample(np.random.default_rng(0), 30)} == {1, 2}
    assert len({child.key({"c": value, "x": 0.5}) for value in (first, second)}) == 2


@pytest.mark.parametrize(
    ("low", "high", "step", "last"),
    [
        (0.0, 0.7 + 0.1, 0.1, 0.8),
        (0.1 * 3, 0.9, 0.1, 0.9),
        (0.0, 0.1 * 3, 0.1, 0.3),
        (-0.1 * 3, 0.1 * 3, 0.1, 0.3),
        (1.1, 1.1 + 2.2, 1.1, 3.3),
        (0.0, 1.0, 1 / 3, 1.0),
    ],
)
def test_a_grid_ends_where_its_bounds_say(
    low: float, high: float, step: float, last: float
) -> None:
    parameter = Float("x", low, high, step=step)
    values = parameter.values()
    assert values[-1] == pytest.approx(last, abs=1e-8 * step)
    assert all(parameter.low <= value <= parameter.high for value in values)
    assert [parameter.accept(value) for value in values] == values
    assert parameter.from_units(parameter.to_units(values)) == values


def test_conditions_have_the_form_of_their_parent() -> None:
    space = Space(
        Int("n", 1, 3),
        Choice("c", [1, 2], when={"n": ["2", 3.0]}),
        Float("x", 0, 1, when={"c": 2.0}),
    )
    assert repr(space.parameters["c"].when) == "{'n': (2, 3)}"
    assert repr(space.parameters["x"].when) == "{'c': (2,)}"
    assert repr(space.accept({"n": "2", "c": 2.0, "x": "0"})) == "{'n': 2, 'c': 2, 'x': 0.0}"


def test_what_is_not_given() -> None:
    space = Space(
        Choice("kind", ["a", "b"]),
        Float("x", 0, 1, default=0.25, when={"kind": "b"}),
        Int("n", 0, 4),
    )
    options: dict[str, Any]
    for params, options, found in (
        ({}, {}, {"kind": "a", "n": 2}),
        ({"kind": "b"}, {}, {"kind": "b", "x": 0.25, "n": 2}),
        ({"kind": "b"}, {"rest": {"x": 0.5, "n": 9}}, {"kind": "b", "x": 0.5, "n": 2}),
        ({"x": 0.5, "other": 1}, {"surplus": True}, {"kind": "a", "n": 2}),
    ):
        assert space.accept(params, **options) == found
    for given_, said in (
        ({"x": 0.5}, "x is active only when kind is 'b'; leave it out, got 0.5"),
        ({"knd": "a"}, "unknown parameter 'knd': did you mean 'kind'"),
        ({1: 2}, "unknown parameter 1"),
    ):
        with pytest.raises(SpaceError, match=said):
            space.accept(given_)
    with pytest.raises(SpaceError, match="n is active and needs a value"):
        space.accept({"kind": "a"}, whole=True)
