"""The log of a trial's reports: an immutable sequence that shares its points."""

from __future__ import annotations

from functools import reduce

import pytest

from automl.core.events import lineage
from automl.core.trial import ReportLog, ReportPoint


def point(number: int, attempt: int = 1, **metrics: float) -> ReportPoint:
    return ReportPoint(number, metrics or {"loss": float(number)}, float(number), attempt, number)


def test_a_longer_log_leaves_the_shorter_one_as_it_was() -> None:
    one = ReportLog([point(0)])
    two = one.with_added(point(1))
    other = one.with_added(point(2))
    assert one == (point(0),)
    assert two == (point(0), point(1))
    assert other == [point(0), point(2)]
    assert two != other
    assert len(two) == 2
    assert two[-1] == point(1)
    assert two[:1] == (point(0),)
    with pytest.raises(IndexError):
        one[1]


def test_the_first_report_of_a_metric() -> None:
    one = ReportLog([point(0)])
    two = one.with_added(point(1, bleu=3.0))
    assert two.first("bleu") == point(1, bleu=3.0)
    assert one.first("bleu") is None
    assert one.with_added(point(2)).first("bleu") is None
    assert two.first("loss") == point(0)


def test_a_later_attempt_replaces_the_reports_from_its_first_step_on() -> None:
    first = [point(0), point(1), point(2)]
    again = [ReportPoint(1, {"loss": 9.0}, 1.0, 2, 0), ReportPoint(2, {"loss": 8.0}, 1.0, 2, 1)]
    assert reduce(lineage, [*first, *again], ReportLog()) == [first[0], *again]
