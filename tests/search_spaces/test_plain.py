"""Spaces as plain data: ranges, lists and mappings by name."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import Choice, Float, Int, Space, SpaceError
from search_spaces.plain import read_space


def test_a_mapping_of_ranges_is_a_space() -> None:
    space = read_space(
        {
            "x": (0, 10),
            "y": (0, 1.5),
            "optimizer": ["sgd", "adam"],
            "lr": {"low": 1e-5, "high": 0.1, "log": True},
            "momentum": Float("momentum", 0.0, 0.9, when={"optimizer": "sgd"}),
        }
    )
    assert space == Space(
        Int("x", 0, 10),
        Float("y", 0.0, 1.5),
        Choice("optimizer", ["sgd", "adam"]),
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
def test_anything_else_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        read_space(given)
