"""Braces in the arguments of a command."""

from __future__ import annotations

import pytest

from search_spaces.errors import UsageError
from workers.command.arguments import check, fill, fill_shell, replaced

PARAMS = {"lr": 1e-05, "width": 64, "amp": True, "mode": "a b", "off": None, "layers": (1, 2)}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--lr={lr}", ["--lr=1e-05"]),
        ("{lr}/{width}", ["1e-05/64"]),
        ("{amp}", ["true"]),
        ("{mode}", ["a b"]),
        ("{layers}", ["[1, 2]"]),
        ("{config}", ["/c.json"]),
        ("--config={config}", ["--config=/c.json"]),
        ("{{lr}}", ["{lr}"]),
        ("{{{lr}}}", ["{1e-05}"]),
        ("plain", ["plain"]),
        ("--off={off}", []),
        ("--inactive={inactive}-{lr}", []),
        ("{params}", ["--lr=1e-05", "--width=64", "--amp=true", "--mode=a b", "--layers=[1, 2]"]),
    ],
)
def test_an_argument_of_a_trial(argument: str, expected: list[str]) -> None:
    check([argument], [*PARAMS, "inactive"])
    assert fill(["run", argument], PARAMS, "/c.json") == ["run", *expected]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--w={widht}", "names no parameter: did you mean 'width'"),
        ("{}", "names no parameter"),
        ("{lr", "a brace in the argument '{lr' has no partner: write {{"),
        ("lr}", "write }}"),
        ("{lr!r}", "names no parameter"),
        ("{lr.real}", "names no parameter"),
        ("{0}", "names no parameter"),
    ],
)
def test_other_braces_are_refused(argument: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(["run", argument], PARAMS)
    assert words in str(caught.value)


def test_a_value_is_never_read_as_a_command_of_the_shell() -> None:
    line = fill_shell("run {x} {y} {{z}} {params} <{config}", {"x": "$(id); '", "y": None}, "/c d")
    assert line == "run '$(id); '\"'\"'' '' {z} '--x=$(id); '\"'\"'' <'/c d'"


def test_a_value_with_braces_is_not_replaced_again() -> None:
    assert fill(["{a}"], {"a": "{b}", "b": "secret"}, "") == ["{b}"]
    assert replaced("x-{a}", {"a": "{b}"}, "") == "x-{b}"
