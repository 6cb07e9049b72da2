"""Durations as people write them, and as they are shown."""

from __future__ import annotations

import pytest

from automl.core.arguments import duration, parse_duration
from automl.errors import UsageError


@pytest.mark.parametrize("wrong", ["1e3m", "1e3h", "es", "1es", "1e999s", "0e5s", "-1e5s"])
def test_an_exponent_is_for_seconds_only(wrong: str) -> None:
    with pytest.raises(UsageError, match="a duration is like 90s, 10m or 1h30m"):
        parse_duration(wrong)


def test_a_duration_is_positive_and_has_milliseconds_last() -> None:
    assert (parse_duration("1m1s500ms"), parse_duration("500ms")) == (61.5, 0.5)
    for wrong in ("0s", 0, "", "-1s", "5ms1s"):
        with pytest.raises(UsageError, match="a duration is like"):
            parse_duration(wrong)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (1e-9, "1ms"),
        (0.0204, "20ms"),
        (0.9996, "1s"),
        (1e300, "1.16e+295 days"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (90000, "1d 01h"),
    ],
)
def test_durations_are_short(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
