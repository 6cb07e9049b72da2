"""Texts in the log have a limit, whoever writes them."""

from __future__ import annotations

import pytest

from automl.core.events import Begun, Command, Ended, Leased, Moved, Noted, Proposed, SweepEvent
from automl.core.trial import TrialState
from automl.ledger.records import MAX_CHARACTERS, limited
from workers.failures import MAX_MESSAGE, MAX_TRACEBACK, bounded
from workers.protocol import Ending, Outcome, Report, Started

LONG = "x" * 100_000


def outcome(**fields: object) -> Outcome:
    return Outcome(0, 1, Ending.FAILED, failure="crashed", **fields)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (Proposed(0, {}, LONG), "source"),
        (Started(0, 1, LONG), "worker"),
        (Moved(0, TrialState.WAITING, LONG), "reason"),
        (Noted("note", LONG), "message"),
        (Noted(LONG, "note"), "kind"),
        (Command("stop", {}, by=LONG), "by"),
        (Leased(0, 1, LONG, 1.0, 2.0), "agent"),
        (Ended(outcome(), TrialState.FAILED, message=LONG), "message"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_long_text_is_cut_and_says_so(event: SweepEvent, field: str) -> None:
    kept = getattr(limited(event), field)
    assert len(kept) == MAX_CHARACTERS[field]
    assert kept.endswith("... (100,000 characters in all)")
    assert limited(limited(event)) == limited(event)


def test_an_outcome_is_cut_too() -> None:
    whole = outcome(message=LONG, exception=LONG, details={"traceback": LONG, "a": 1})
    event = Ended(whole, TrialState.FAILED)
    found = limited(event)
    assert isinstance(found, Ended)
    kept = found.outcome
    assert len(kept.message) == MAX_MESSAGE
    assert len(kept.exception) == MAX_CHARACTERS["exception"]
    assert len(kept.details["traceback"]) == MAX_TRACEBACK
    assert kept.details["a"] == 1
    assert bounded(kept.message) == kept.message, "what a worker has cut is not cut again"


def test_a_text_within_its_limit_stays_as_it_is() -> None:
    most = "x" * MAX_MESSAGE
    for event in (
        Noted("note", most),
        Begun(0, 1),
        Report(0, 1, 0, 1, {LONG: 1.0}, 1.0),
        Ended(outcome(message=most), TrialState.FAILED),
    ):
        assert limited(event) is event
