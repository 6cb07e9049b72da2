"""The verdict of a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.common.bounds import at_least, at_most, conclude
from benchmarks.control import scale, utilisation


def test_what_does_not_hold_or_was_not_measured_is_said_on_the_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [
        at_most("seconds", 2.0, 2.0),
        at_least("share", 0.4, 0.5, "of two"),
        at_most("regret", None, 0.1),
    ]
    assert [verdict.holds for verdict in found] == [True, False, None]
    assert conclude(found) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "NOT HELD 2 of 3: MISSED: share: 0.4, at least 0.5, of two; not measured: regret: -, at most 0.1"
    )
    assert conclude(found[:1]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "HELD: all 1"


@pytest.mark.parametrize("main", [scale.main, utilisation.main])
def test_the_kept_rows_are_checked_without_measuring(main, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmark", "--table", "--check"])
    assert main() == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("HELD: all")
