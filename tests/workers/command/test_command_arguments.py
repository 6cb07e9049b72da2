"""Braces in the arguments of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces import Choice, Float
from search_spaces.errors import UsageError
from workers.command.arguments import Braces, check, flags_of, with_absolute_path

PARAMS = {"lr": 1e-05, "width": 64, "amp": True, "mode": "a b", "off": None, "layers": (1, 2)}
FACTS = {"config": "/c.json", "trial": "3", "checkpoint_dir": "/t/checkpoints"}


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
    assert Braces(PARAMS, FACTS).fill(["run", argument]) == ["run", *expected]


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
        ("{lr?a:b}", "names no parameter"),
    ],
)
def test_other_braces_are_refused(argument: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(["run", argument], PARAMS)
    assert words in str(caught.value)


def test_a_flag_goes_with_the_value_that_follows_it() -> None:
    given = [
        "run",
        "--off",
        "{off}",
        "-v",
        "--mode",
        "{mode}",
        "--amp",
        "{nesterov}",
        "-o",
        "{off}",
    ]
    braces = Braces({**PARAMS, "nesterov": None}, flags=frozenset({"nesterov"}))
    assert braces.fill(given) == ["run", "-v", "--mode", "a b", "--amp"]
    assert flags_of({"nesterov": Choice("nesterov", ["--nesterov", None])}) == {"nesterov"}
    assert flags_of({"x": Choice("x", ["-1", "b"]), "lr": Float("lr", 0, 1)}) == frozenset()


def test_a_value_with_braces_is_not_replaced_again() -> None:
    assert Braces({"a": "{b}", "b": "secret"}).fill(["{a}"]) == ["{b}"]
    assert Braces({"a": "{b}"}).replaced("x-{a}") == "x-{b}"


def test_paths_of_files_become_absolute(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "data" / "small").mkdir(parents=True)
    given = ["python", "train.py", "--data=data/small", "data", "--file=train.py", "--none=x.py"]
    found = [with_absolute_path(one, str(tmp_path)) for one in given]
    assert found == [
        "python",
        f"{tmp_path}/train.py",
        f"--data={tmp_path}/data/small",
        "data",
        f"--file={tmp_path}/train.py",
        "--none=x.py",
    ]
