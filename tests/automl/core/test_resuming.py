"""The line that resumes a sweep."""

from __future__ import annotations

import shlex

import pytest

from automl.core import Origin, SweepSpec, parse_goals
from automl.core.text import Typed, shell_line, told_how_to_resume
from automl.errors import AutomlError, StoreFailure, UsageError
from search_spaces import Float, Space


def spec(**fields: object) -> SweepSpec:
    goals = parse_goals("minimize loss")
    return SweepSpec("mine", Space(Float("lr", 0.0, 1.0)), goals, **fields)  # type: ignore[arg-type]


def test_a_shell_reads_what_was_typed() -> None:
    command = "-- python 'my train.py' --lr={lr} '--note=a; b'"
    typed = Typed("my runs", ray_address="auto", changes=("--trials", "60", "space.x=[1, 2]"))
    line = typed.line(spec(origin=Origin(command), artifacts="s3://bucket/a b"))
    assert "--lr={lr}" in line, "braces are easier to read without quotes"
    assert shlex.split(line) == [
        *("automl", "resume", "mine", "--store", "my runs", "--ray-address", "auto"),
        *("--artifacts", "s3://bucket/a b", "--trials", "60", "space.x=[1, 2]"),
        *("--", "python", "my train.py", "--lr={lr}", "--note=a; b"),
    ]


@pytest.mark.parametrize("text", ["; touch caught", "$(touch caught)", "'; touch caught", "a\nb"])
def test_the_command_of_a_received_store_adds_no_command_of_its_own(text: str) -> None:
    words = shlex.split(Typed().line(spec(origin=Origin(f"-- true {text}"))), posix=True)
    assert words[:3] == ["automl", "resume", "mine"]
    line = Typed().line(spec(origin=Origin(f"-- true {text}")))
    bare = list(shlex.shlex(line, posix=False, punctuation_chars=True))
    assert not {";", "&", "|", "(", ")"} & set(bare)


def test_a_function_or_a_workload_is_named_as_it_was_typed() -> None:
    assert Typed(objective="a b.py:f").line(spec()).endswith("mine --objective 'a b.py:f'")
    assert Typed().line(spec(workload="translation")) == "automl resume mine"


def test_only_errors_that_leave_the_sweep_resumable_say_how() -> None:
    for kind, told in ((AutomlError, True), (StoreFailure, True), (UsageError, False)):
        with pytest.raises(kind) as caught, told_how_to_resume("THIS"):
            raise kind("gone")
        assert ("To go on with the sweep: THIS" in str(caught.value)) is told


def test_quotes_where_a_shell_needs_them() -> None:
    assert shell_line(["a b", "--lr={lr}", "{a,b}", "$x"]) == "'a b' --lr={lr} '{a,b}' '$x'"
