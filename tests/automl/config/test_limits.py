"""Limits and settings as people type them."""

from __future__ import annotations

import json

import pytest

from automl.config.limits import read_limit, read_setting
from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Float, Int, Space

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("width", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam", "rmsprop"]),
    Choice("blocks", [1, 2, 4, 8], ordered=True),
)
LIMITS = dict(
    read_limit(text, SPACE) for text in ("lr=1e-4..1e-3", "optimizer=[adam,rmsprop]", "width=128")
)


def test_limits_are_read_as_people_write_them() -> None:
    assert LIMITS["lr"] == Limit(low=1e-4, high=1e-3)
    assert LIMITS["optimizer"] == Limit(choices=("adam", "rmsprop"))
    assert LIMITS["width"] == Limit(low=128, high=128)
    assert read_limit("blocks=2..8", SPACE)[1] == Limit(choices=(2, 4, 8))
    assert [str(limit) for limit in LIMITS.values()] == ["0.0001 to 0.001", "adam, rmsprop", "128"]
    assert {name: Limit.from_dict(limit.to_dict()) for name, limit in LIMITS.items()} == LIMITS


@pytest.mark.parametrize(
    "text",
    ["lr", "lr=", "lr=2", "lr=1e-3..1e-4", "lr=.nan", "optimizer=adamw", "rate=1", "width=1.5"],
)
def test_a_limit_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_limit(text, SPACE)


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
    assert read_limit("model.widths=[64,32]", ODD)[1] == Limit(choices=((64, 32),))
    limit = read_limit("model.widths=[null,[64]]", ODD)[1]
    assert (limit, str(limit)) == (Limit(choices=(None, (64,))), "None, [64]")
    assert Limit.from_dict(json.loads(json.dumps(limit.to_dict()))) == limit
    with pytest.raises(UsageError, match=r"0\.3; the nearest value is 0\.25"):
        read_setting("model.rate=0.3", ODD)
