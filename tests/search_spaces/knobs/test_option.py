"""An option is declared once: code and workloads agree with its declaration."""

from __future__ import annotations

import pytest

from search_spaces.errors import SpaceError, UsageError
from search_spaces.knobs import Option
from search_spaces.parameters import Choice, Float, Int

SIZE = Option("size", "of a test", 64, (16, 64, 256), ordered=True, log=True)


def test_a_choice_a_range_or_nothing() -> None:
    assert SIZE.build({}) == Choice("size", [16, 64, 256], ordered=True, default=64)
    assert SIZE.build({"size": {"low": 8, "high": 32}}) == Int("size", 8, 32, log=True, default=32)
    assert SIZE.build({"size": [1, 2]}) == Choice("size", [1, 2], ordered=True, default=2)
    assert SIZE.build({"size": False}) is None
    share = Option("share", "of a test", 0.5, low=0.0, high=1.0)
    assert share.build({"share": {"low": 0.7}}) == Float("share", 0.7, 1.0, default=0.7)
    with pytest.raises(SpaceError, match="size is adjusted by False, a list"):
        SIZE.build({"size": "big"})


def test_values_of_an_option() -> None:
    mode = Option("mode", "of a test", "fast", ("fast", "slow"), untuned=("exact",), unset="slow")
    assert mode.value({}) == "slow"
    assert mode.value({"mode": "exact"}) == "exact"
    assert SIZE.value({"size": 3}) == 3
    with pytest.raises(UsageError, match="mode is one of fast, slow, exact, got 'fats'"):
        mode.value({"mode": "fats"})
