from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from drawn import parameters
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution

from search_spaces import Choice, Float, Int, Parameter, SpaceError
from search_spaces.parameters import parameter_from_dict

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Float("x", NAN, 1), "low of 'x' must be a finite number, got nan"),
        (lambda: Float("x", 0, INF), "high of 'x' must be a finite number, got inf"),
        (lambda: Float("x", 0, 10**400), "high of 'x' must be a finite number"),
        (lambda: Float("x", "0", 1), "low of 'x' must be a finite number, got '0'"),
        (lambda: Float("x", False, 1), "low of 'x' must be a finite number, got False"),
        (lambda: Float("x", 2, 1), "low=2.0, high=1.0; swap them"),
        (lambda: Float("x", 0, 1, log=True), "low of 'x' must be above 0 on a log scale, got 0.0"),
        (lambda: Float("x", -1, 1, log=True), "must be above 0 on a log scale"),
        (lambda: Int("n", 0, 8, log=True), "must be above 0 on a log scale, got 0"),
        (lambda: Int("n", 8, 1), "low=8, high=1; swap them"),
        (lambda: Int("n", 0.5, 3), "low of 'n' must be an integer, got 0.5; an Int has whole"),
        (lambda: Int("n", 0, NAN), "high of 'n' must be an integer, got nan"),
        (lambda: Int("n", True, 3), "low of 'n' must be an integer, got True"),
        (lambda: Int("n", 0, 2**53), "within plus or minus"),
        (lambda: Choice("c", []), "of these, and there must be one; got []"),
        (lambda: Choice("c", "abc"), "choices of 'c' must be a list, got 'abc'"),
        (lambda: Choice("c", {"a", "b"}), "must be a list"),
        (lambda: Choice("c", 3), "must be a list, got 3"),
        (lambda: Choice("c", ["a", "a"]), "must differ, got ['a', 'a']; drop one"),
        (lambda: Choice("c", [1, 1.0]), "must differ, got [1, 1.0]"),
        (lambda: Choice("c", [0.1, NAN]), "each choice of 'c' must be"),
        (lambda: Choice("c", [{"a": 1}]), "got [{'a': 1}]"),
        (lambda: Choice("c", [[NAN]]), "each choice of 'c' must be"),
        (lambda: Choice("c", [[1], (1,)]), "must differ, got [[1], (1,)]"),
        (lambda: Choice("c", ["a"], default=[1]), "the default of c must be one of 'a'; got (1,)"),
        (lambda: Float("x", 0, 1, step=0), "step of 'x' must be above 0, got 0"),
        (lambda: Float("x", 0, 1, step="a"), "step of 'x' must be a finite number, got 'a'"),
        (lambda: Float("x", 1, 2, step=0.5, log=True), "a step of 0.5, which a log scale cannot"),
        (lambda: Int("n", 1, 9, step=2, log=True), "a step of 2, which a log scale cannot have"),
        (lambda: Int("n", 1, 9, step=0.5), "step of 'n' must be an integer, got 0.5"),
        (lambda: Float("x", 0, 1, step=1e-20), "'x' has too many steps of 1e-20 between 0"),
        (lambda: Float("x", 0, 1, step=5e-324), "has too many steps of 5e-324"),
        (lambda: Float("x", 0, 1e300, step=1e-10), "has too many steps of 1e-10"),
        (
            lambda: Float("x", 0, 1, step=0.25, default=0.3),
            "the default of x goes from 0.0 in steps of 0.25, got 0.3; the nearest value is 0.25",
        ),
        (lambda: Int("n", 1, 9, step=3, default=5), "in steps of 3, got 5; the nearest value is 4"),
        (lambda: Float("model..lr", 0, 1), "may join such parts by dots (model.lr)"),
        (lambda: Choice("c", ["\ud800"]), "each choice of 'c' must be"),
        (lambda: Float("x", 0, 1, default=2), "the default of x must lie in [0.0, 1.0], got 2"),
        (lambda: Float("x", 0, 1, default="a"), "the default of x must be a number, got 'a' (str)"),
        (lambda: Float("x", 0, 1, default=NAN), "the default of x must lie in"),
        (
            lambda: Int("n", 0, 1, default=0.5),
            "the default of n must be an integer, got 0.5 (float)",
        ),
        (
            lambda: Int("n", 0, 1, default=True),
            "the default of n must be an integer, got True (bool)",
        ),
        (
            lambda: Choice("c", [1, 2], default=True),
            "the default of c must be one of 1, 2; got True",
        ),
        (lambda: Choice("c", ["a"], default="b"), "the default of c must be one of 'a'; got 'b'"),
        (lambda: Float("", 0, 1), "name is made of letters"),
        (lambda: Float(".a", 0, 1), "name is made of letters"),
        (lambda: Float("1a", 0, 1), "name is made of letters"),
        (lambda: Float("a\n", 0, 1), "name is made of letters"),
        (lambda: Float(3, 0, 1), "name is made of letters"),
        (lambda: Float("ﬁ", 0, 1), "name is made of letters"),
        (lambda: Float("a" * 101, 0, 1), "at most 100 characters"),
        (
            lambda: Float("x", 0, 1, affects="sped"),
            "must name at least one of quality, speed and memory, got 'sped'",
        ),
        (lambda: Float("x", 0, 1, affects=()), "must name at least one of quality"),
        (lambda: Float("x", 0, 1, when=["a"]), "when of 'x' must map a parent's name"),
        (lambda: Float("x", 0, 1, when={"a": []}), "must give 'a' a value or a list"),
        (lambda: Float("x", 0, 1, when={"a": [{}]}), "must give 'a' a value or a list"),
        (lambda: parameter_from_dict(None), "an object whose type is one of float, int, choice"),
        (lambda: parameter_from_dict({"type": []}), "an object whose type is one of float, int"),
        (lambda: parameter_from_dict({"type": "int", "name": "x"}), "malformed int parameter"),
        (
            lambda: parameter_from_dict({"type": "float", "name": "x", "low": 0, "hgh": 1}),
            "x: a float takes no 'hgh'; did you mean 'high'",
        ),
    ],
)
def test_malformed_parameters_are_refused(build: Any, said: str) -> None:
    with pytest.raises(SpaceError) as error:
        build()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Float("x", 0, 1), True),
        (Float("x", 0, 1), NAN),
        (Float("x", 0, 1), 1.0000001),
        (Float("x", 0, 1), None),
        (Float("x", 0, 1), "half"),
        (Float("x", 0, 1), "true"),
        (Int("n", 0, 9), 3.5),
        (Int("n", 0, 9), "3.5"),
        (Int("n", 0, 9), True),
        (Int("n", 0, 9), 10),
        (Choice("c", [0, 1]), True),
        (Choice("c", [False, True]), 1),
        (Choice("c", ["1"]), 1),
        (Choice("c", ["a"]), ["a"]),
        (Choice("c", ["a"]), None),
    ],
)
def test_wrong_values_are_refused(parameter: Parameter, value: object) -> None:
    assert not parameter.legal(value)
    with pytest.raises(SpaceError, match=f"^{parameter.name} must"):
        parameter.accept(value)


def test_numpy_scalars_and_enumerations_become_plain_values() -> None:
    class Kind(StrEnum):
        A = "a"

    parameter = Choice("c", [np.float32(0.5), np.int64(3), Kind.A, np.bool_(True)])
    assert [type(choice) for choice in parameter.choices] == [float, int, str, bool]
    assert [
        type(bound)
        for bound in (Int("n", np.int32(1), np.int64(5)).low, Float("x", np.float32(0), 1).low)
    ] == [
        int,
        float,
    ]


def test_units_of_known_values() -> None:
    assert Choice("c", ["a", "b", "c", "d"]).to_units(["a", "d"]).tolist() == [0.125, 0.875]
    assert Int("n", 0, 3).to_units([0, 1, 2, 3]).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert Float("x", -1, 3).to_units([-1, 0, 3]).tolist() == [0.0, 0.25, 1.0]
    assert Float("x", 1e-4, 1, log=True).to_unit(1e-2) == pytest.approx(0.5)
    log = Int("n", 1, 4, log=True)
    edges = np.log([0.5, 1.5, 2.5, 3.5, 4.5])
    centres = (edges[1:] + edges[:-1]) / 2
    assert log.to_units([1, 2, 3, 4]) == pytest.approx(
        (centres - edges[0]) / (edges[-1] - edges[0])
    )
    assert log.weights([1, 2, 3, 4]) == pytest.approx(np.diff(edges) / (edges[-1] - edges[0]))


def test_ends_are_exact_and_outside_is_clipped() -> None:
    for parameter in (
        Float("x", 0.1, 0.7, log=True),
        Float("x", -1e308, 1.7e308),
        Int("n", 3, 17, log=True),
    ):
        assert (
            parameter.from_units(np.array([0.0, 1.0, -5.0, 5.0]))
            == [parameter.low, parameter.high] * 2
        )
        assert parameter.from_unit(NAN) == parameter.from_unit(0.5)


@given(st.data())
def test_every_coordinate_gives_a_legal_value_that_comes_back(data: st.DataObject) -> None:
    parameter = data.draw(parameters("p"))
    units = np.array(data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=5)))
    values = parameter.from_units(units)
    back = parameter.from_units(parameter.to_units(values))
    assert all(map(parameter.legal, values))
    for value, again in zip(values, back, strict=True):
        if isinstance(parameter, Float) or (
            isinstance(parameter, Int) and parameter.high - parameter.low > 2**40
        ):
            assert math.isclose(
                value, again, rel_tol=1e-9, abs_tol=1e-12 * (parameter.high / 2 - parameter.low / 2)
            )
        else:
            assert value == again


@given(st.data())
def test_moves_stay_in_the_interval_and_leave_the_cell(data: st.DataObject) -> None:
    parameter = data.draw(parameters("p"))
    value = parameter.from_unit(data.draw(st.floats(0, 1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    moved = parameter.perturb(np.full(20, parameter.to_unit(value)), rng)
    assert ((moved >= 0) & (moved <= 1)).all()
    if parameter.size is not None and 1 < parameter.size < 2**40:
        assert all(other != value for other in parameter.from_units(moved))


def test_steps_are_counted_from_low_as_in_optuna() -> None:
    x = Float("x", 0.1, 1.0, step=0.2)
    assert x.values() == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert (x.high, x.size, x.to_unit(0.3), x.accept(0.1 + 0.2)) == (0.9, 5, 0.3, 0.3)
    assert Int("n", 16, 100, step=32).values() == [16, 48, 80]
    with pytest.warns(UserWarning, match="not divisible"):
        theirs = FloatDistribution(0.1, 1.0, step=0.2)
    assert (theirs.high, x.high) == (0.9, 0.9)
    moved = x.raw(x.perturb(x.to_units([0.5] * 200), np.random.default_rng(0)))
    assert set(moved.tolist()) <= {0.1, 0.3, 0.7, 0.9}
