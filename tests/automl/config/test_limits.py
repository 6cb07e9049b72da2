"""Limits and settings as people type them."""

from __future__ import annotations

import json

import pytest

from automl.config.overrides import limit_of, plain_changes, read_changes, read_setting
from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("width", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam", "rmsprop"]),
    Choice("blocks", [1, 2, 4, 8], ordered=True),
)
LIMITS = {
    name: limit_of(SPACE, name, value)
    for name, value in {
        "lr": [1e-4, 1e-3],
        "optimizer": ["adam", "rmsprop"],
        "width": 128.0,
    }.items()
}


def test_limits_are_values_ranges_and_choices() -> None:
    assert LIMITS["lr"] == Limit(low=1e-4, high=1e-3)
    assert LIMITS["optimizer"] == Limit(choices=("adam", "rmsprop"))
    assert LIMITS["width"] == Limit(low=128, high=128)
    assert [str(limit) for limit in LIMITS.values()] == ["0.0001 to 0.001", "adam, rmsprop", "128"]
    assert {name: Limit.from_dict(limit.to_dict()) for name, limit in LIMITS.items()} == LIMITS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 2), ("lr", [1e-3, 1e-4]), ("lr", [1e-4, 1e-3, 1e-2]), ("lr", "fast"),
        ("optimizer", "adamw"), ("optimizer", ["adam", "adamw"]), ("rate", 1), ("width", 1.5),
    ],
)  # fmt: skip
def test_a_limit_that_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError):
        limit_of(SPACE, name, value)


def test_changes_are_of_the_budget_the_workers_and_the_space() -> None:
    words = ["budget.trials=9", "budget.time=2h", "budget.target=null", "workers=4", "space.a.b=1"]
    found = read_changes(plain_changes(words))
    assert found.budget == {"trials": 9, "time": 7200.0, "target": None}
    assert (str(found.workers), found.space) == ("4", {"a.b": 1})
    ranged = read_changes(plain_changes(["workers={min: 2, max: 8}", "space.x=[1e-3, 1]"]))
    assert (str(ranged.workers), ranged.space) == ("2 to 8", {"x": [1e-3, 1]})
    for wrong in ({"seed": 1}, {"budget.hours": 1}, {"space.": 1}, {"workers": "many"}):
        with pytest.raises(UsageError):
            read_changes(wrong)


def test_a_setting_is_a_value_of_its_parameter() -> None:
    assert read_setting("width=64", SPACE) == ("width", 64)
    assert read_setting("optimizer=adam", SPACE) == ("optimizer", "adam")
    with pytest.raises(UsageError, match="a setting is KEY=VALUE"):
        read_setting("width", SPACE)


ODD = Space(
    Choice("model.widths", [None, [64, 32], [64]]),
    Float("model.rate", 0.0, 1.0, step=0.25),
    Choice("words", ["none", "a"]),
)


def test_none_lists_and_dotted_names_are_typed_as_in_yaml() -> None:
    for text in ("[64,32]", "[64, 32]", "(64, 32)"):
        assert read_setting(f"model.widths={text}", ODD) == ("model.widths", (64, 32))
    assert read_setting("model.widths=null", ODD)[1] is None
    assert read_setting("model.widths=None", ODD)[1] is None
    assert read_setting("words=none", ODD)[1] == "none"
    assert limit_of(ODD, "model.widths", [64, 32]) == Limit(choices=((64, 32),))
    limit = limit_of(ODD, "model.widths", [None, [64]])
    assert (limit, str(limit)) == (Limit(choices=(None, (64,))), "None, [64]")
    assert Limit.from_dict(json.loads(json.dumps(limit.to_dict()))) == limit
    with pytest.raises(UsageError, match=r"'0\.3'; the nearest value is 0\.25"):
        read_setting("model.rate=0.3", ODD)
