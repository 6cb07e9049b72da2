from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from drawn import spaces
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Choice, Float, Int, Space, SpaceError
from search_spaces.space import read_space


def tree() -> Space:
    """Two levels of conditions, one child with two parents, given children first."""
    return Space(
        Float("nesterov_share", 0, 1, when={"momentum_kind": "nesterov", "layers": [2, 3]}),
        Choice("momentum_kind", ["plain", "nesterov"], when={"optimizer": "sgd"}),
        Float("beta", 0.8, 0.999, when={"optimizer": ["adam", "adamw"]}),
        Choice("optimizer", ["sgd", "adam", "adamw"]),
        Int("layers", 1, 3),
    )


@pytest.mark.parametrize(
    ("params", "active"),
    [
        ({"optimizer": "adam", "layers": 2}, ("optimizer", "layers", "beta")),
        (
            {"optimizer": "sgd", "momentum_kind": "nesterov", "layers": 3},
            ("optimizer", "momentum_kind", "layers", "nesterov_share"),
        ),
        (
            {"optimizer": "sgd", "momentum_kind": "nesterov", "layers": 1},
            ("optimizer", "momentum_kind", "layers"),
        ),
        # A parent that is not active counts for nothing, even where a value for it lies about.
        (
            {"optimizer": "adam", "momentum_kind": "nesterov", "layers": 3},
            ("optimizer", "layers", "beta"),
        ),
    ],
)
def test_active(params: dict[str, Any], active: tuple[str, ...]) -> None:
    assert tree().active(params) == active


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"optimizer": "adam", "layers": 2}, "beta is active and needs a value"),
        ({"optimizer": "adam", "layers": 2, "beta": 0.5}, "beta must lie in [0.8, 0.999], got 0.5"),
        (
            {"optimizer": "adam", "layers": 2.5, "beta": 0.9},
            "layers must be an integer, got 2.5 (float)",
        ),
        (
            {"optimizer": "sgd", "momentum_kind": "plain", "layers": 1, "beta": 0.9},
            "beta is active only when optimizer is",
        ),
        ({"optimizr": "adam"}, "unknown parameter 'optimizr': did you mean 'optimizer'?"),
        (
            {"optimizer": ["adam"], "layers": 2},
            "optimizer must be one of 'sgd', 'adam', 'adamw'; got ['adam']",
        ),
        (None, "a configuration maps names to values, got None"),
    ],
)
def test_check_says_what_is_wrong(params: Any, said: str) -> None:
    with pytest.raises(SpaceError) as error:
        tree().accept(params, whole=True)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Space(Float("x", 0, 1), Int("x", 0, 1)), "'x' is given twice"),
        (lambda: Space("x"), "made of Float, Int and Choice parameters, got 'x'"),
        (
            lambda: Space(Choice("kind", ["a"]), Float("x", 0, 1, when={"kid": "a"})),
            "when of 'x' names the unknown parent 'kid': did you mean 'kind'?",
        ),
        (
            lambda: Space(Float("x", 0, 1, when={"y": 1})),
            "when of 'x' names the unknown parent 'y': known: none",
        ),
        (
            lambda: Space(Choice("k", [True, False]), Float("x", 0, 1, when={"k": 1})),
            "'k' cannot take",
        ),
        (
            lambda: Space(Int("n", 0, 3), Float("x", 0, 1, when={"n": 4})),
            "n must lie in [0, 3], got 4",
        ),
        (lambda: Space(Float("y", 0, 1), Float("x", 0, 1, when={"y": 0.5})), "'y' is a Float"),
        (
            lambda: Space(
                Choice("a", [1], when={"c": 1}),
                Choice("b", [1], when={"a": 1}),
                Choice("c", [1], when={"b": 1}),
            ),
            "must not form a cycle, got a -> c -> b -> a",
        ),
        (lambda: Space(Float("x", 0, 1), constraints="y > 0"), "names the unknown parameter 'y'"),
        (lambda: Space(Float("lr", 0, 1), constraints=["rl > 0"]), "unknown parameter 'rl'"),
        (
            lambda: Space(Float("x", 0, 1), constraints=["1 < 2"]),
            "must name at least one parameter",
        ),
        (lambda: Space(Float("x", 0, 1), constraints=["x >"]), "not well formed"),
        (lambda: Space(Float("x", 0, 1), constraints=[3]), "a constraint is a text"),
        (lambda: Space(Float("x", 0, 1), constraints=3), "a constraint is a text"),
        (lambda: Space(Float("x", 0, 1), constraints=None), "a constraint is a text"),
        (lambda: Space.from_dict({}), "an object with a list of parameters, got {}"),
        (lambda: Space.from_dict({"parameters": [3]}), "a parameter is an object"),
        (lambda: Space(Float("x", 0, 1)).decode(np.zeros(2)), "must have shape (n, 1)"),
        (lambda: Space(Float("x", 0, 1)).decode(np.zeros((1, 2))), "must have shape (n, 1)"),
    ],
)
def test_malformed_spaces_are_refused(build: Any, said: str) -> None:
    with pytest.raises(SpaceError) as error:
        build()
    assert said in str(error.value)


def test_constraints() -> None:
    space = Space(
        Int("batch", 1, 64),
        Choice("kind", ["plain", "cut"]),
        Choice("parts", [1, 2, 4], when={"kind": "cut"}),
        constraints=["batch % parts == 0", "batch <= 32"],
    )
    assert space.legal({"batch": 7, "kind": "plain"})  # the first does not apply
    assert not space.legal({"batch": 7, "kind": "cut", "parts": 2})
    with pytest.raises(SpaceError, match="constraint 'batch <= 32' must hold, got batch=40"):
        space.accept({"batch": 40, "kind": "plain"})


def test_default() -> None:
    momentum = Float("momentum", 0, 1, when={"optimizer": "sgd"})
    adam, sgd = (Choice("optimizer", ["sgd", "adam"], default=one) for one in ("adam", "sgd"))
    assert Space(momentum, adam).default() == {"optimizer": "adam"}
    assert Space(momentum, sgd).default() is None
    assert Space(Float("x", 0, 1, default=0), constraints=["x > 0.5"]).default() is None
    assert Space(Choice("flag", [True, False], default=False)).default() == {"flag": False}


def test_size_of_known_spaces() -> None:
    flags = [Choice(f"c{i}", [True, False]) for i in range(100)]
    assert Space(*flags).size == 2**100
    assert Space(Float("x", 0, 1)).size is None
    assert Space(Float("x", 1, 1), Int("n", -5, 5)).size == 11
    nested = Space(
        Choice("a", ["x", "y", "z"]),
        Int("b", 1, 4, when={"a": ["x", "y"]}),
        Choice("c", [1, 2, 3], when={"b": [1, 2], "a": "x"}),
    )
    assert nested.size == (2 * 3 + 2) + 4 + 1
    chain = [Choice("n0", [0, 1])] + [
        Choice(f"n{i}", [0, 1], when={f"n{i - 1}": 1}) for i in range(1, 50)
    ]
    assert Space(*chain).size == 51


@given(spaces(), st.integers(0, 2**32))
def test_samples_are_legal_and_survive_the_codec(space: Space, seed: int) -> None:
    configurations = space.sample(np.random.default_rng(seed), 20)
    assert configurations == space.sample(np.random.default_rng(seed), 20)
    units = space.encode(configurations)
    assert units.shape == (20, len(space))
    for params, row in zip(configurations, units, strict=True):
        space.accept(params)
        assert tuple(params) == space.active(params)
        assert {n for n, u in zip(space.parameters, row, strict=True) if not np.isnan(u)} == set(
            params
        )
        assert ((row >= 0) & (row <= 1) | np.isnan(row)).all()
    for params, back in zip(configurations, space.decode(units), strict=True):
        space.accept(back)
        if all(
            isinstance(p, Choice) or (isinstance(p, Int) and p.size < 2**40)
            for p in space.parameters.values()
        ):
            assert space.key(back) == space.key(params)


@given(
    spaces(),
    st.integers(0, 99),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=6, max_size=6),
)
def test_any_coordinates_decode_to_something_legal(
    space: Space, seed: int, numbers: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    rows = np.array([rng.permutation(numbers)[: len(space)] for _ in range(5)])
    for params in space.decode(rows):
        space.accept(params)


@given(spaces())
def test_json_pickle_copy_and_repr_give_the_space_back(space: Space) -> None:
    for again in (
        Space.from_dict(json.loads(json.dumps(space.to_dict(), allow_nan=False))),
        pickle.loads(pickle.dumps(space)),
        copy.deepcopy(space),
        eval(repr(space)),
    ):
        assert again == space
        assert list(again.parameters) == list(space.parameters)
    assert len(repr(space).splitlines()) == len(space) + 2


def test_dotted_names_none_and_lists_in_conditions_and_constraints() -> None:
    space = Space(
        Choice("model.kind", ["a", None, [1, 2]]),
        Float("model.lr", 0.0, 1.0, step=0.1, when={"model.kind": [None, [1, 2]]}),
        Int("heads", 1, 8),
        constraints=["model.lr * heads <= 2", "model.kind != None or heads > 1"],
    )
    assert space.constraints[0].names == ("model.lr", "heads")
    assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space
    assert pickle.loads(pickle.dumps(space)) == space
    assert space.active({"model.kind": "a", "heads": 1}) == ("model.kind", "heads")
    assert space.active({"model.kind": (1, 2)}) == ("model.kind", "model.lr", "heads")
    assert not space.legal({"model.kind": None, "model.lr": 0.1, "heads": 1})
    drawn = space.sample(np.random.default_rng(0), 300)
    units = space.encode(drawn)
    assert {params["model.kind"] for params in drawn} == {"a", None, (1, 2)}
    for params, row in zip(drawn, space.decode(units), strict=True):
        space.accept(params)
        assert row == params
    assert space.feasible(units).all()
    assert Space(*space.parameters.values()).feasible(units).all()


def test_a_mapping_of_ranges_is_a_space() -> None:
    space = read_space(
        {
            "x": (0, 10),
            "y": (0, 1.5),
            "optimizer": np.array(["sgd", "adam"]),
            "depth": range(1, 4),
            "lr": {"low": 1e-5, "high": 0.1, "log": True},
            "momentum": Float("momentum", 0.0, 0.9, when={"optimizer": "sgd"}),
        }
    )
    assert space == Space(
        Int("x", 0, 10),
        Float("y", 0.0, 1.5),
        Choice("optimizer", ["sgd", "adam"]),
        Choice("depth", [1, 2, 3]),
        Float("lr", 1e-5, 0.1, log=True),
        Float("momentum", 0.0, 0.9, when={"optimizer": "sgd"}),
    )
    assert read_space(space) is space
    assert read_space([Int("x", 0, 10)]) == Space(Int("x", 0, 10))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "a space is a Space or a mapping of names to ranges"),
        ("x", "a space is a Space or a mapping"),
        ([3], "a space is made of Float, Int and Choice parameters, got 3"),
        ({}, "a space needs at least one parameter"),
        ({"x": 3}, r"the range of 'x' must be \(low, high\) with two numbers"),
        ({"x": (0, 1, 2)}, "the range of 'x' must be"),
        ({"x": (1, 0)}, "low of 'x' must not be above high"),
        ({"x": {"lo": 0}}, "takes no .lo.; did you mean .low."),
        ({3: (0, 1)}, "a parameter's name is"),
        ({"y": Int("x", 0, 1)}, "with another name, 'x'"),
    ],
)
def test_what_is_no_space_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        read_space(given)
