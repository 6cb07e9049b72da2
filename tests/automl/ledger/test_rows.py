"""Rows and back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from automl.core.events import Begun, Command, Ended, Moved, Noted, Proposed, SweepEvent
from automl.core.trial import TrialState
from automl.ledger import rows as codec
from workers.protocol import Ending, Outcome, Started

PARAMS = {"lr": 0.1}


def test_whatever_a_worker_tells_becomes_json() -> None:
    told = {
        "nested": [math.nan, None, {1: -math.inf}],
        "path": Path("/x"),
        "none": None,
        "set": {7},
        "true": True,
    }
    text = codec.dumps(told)
    assert text == codec.dumps(json.loads(text))
    assert json.loads(text) == {
        "nested": ["nan", None, {"1": "-inf"}],
        "path": "/x",
        "none": None,
        "set": [7],
        "true": True,
    }


@pytest.mark.parametrize(
    "event",
    [
        Proposed(0, PARAMS, "bayes", 3.0),
        Begun(0, 1, 2.0),
        Started(0, 1, "host:1"),
        Ended(
            Outcome(0, 1, Ending.FAILED, {"loss": math.inf}, failure="crashed"),
            TrialState.FAILED,
            "crashed",
        ),
        Moved(0, TrialState.PAUSED, "why"),
        Noted("fallback", "nothing"),
        Command("limit", {"lr": [0.1, 0.2]}),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_comes_back_as_it_was(event: SweepEvent) -> None:
    row = codec.event_row(1, event, 5.0)
    again = codec.event_of(row["kind"], row["payload"])
    assert again == event
    if isinstance(again, Ended | Moved):
        assert isinstance(again.state, TrialState)
    if isinstance(again, Ended):
        assert isinstance(again.outcome.ending, Ending)
