"""The verdict of a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.common.bounds import at_least, at_most, complete, conclude


def test_the_last_line_lists_claims_that_are_missed_or_were_not_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        at_most("seconds", 2.0, 2.0),
        at_least("share", 0.4, 0.5, "of two"),
        at_most("regret", None, 0.1),
    ]
    assert [claim.holds for claim in found] == [True, False, None]
    assert conclude(found) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    missed = "MISSED: share: 0.4, at least 0.5, of two"
    assert last == f"NOT HELD 2 of 3: {missed}; not measured: regret: -, at most 0.1"
    assert conclude(found[:1]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "HELD: all 1"


def test_a_value_without_a_limit_is_not_measured() -> None:
    assert at_most("regret", 0.1, None).holds is None
    assert complete("peers", ["smac"]).holds is None
    assert complete("peers", []).holds
