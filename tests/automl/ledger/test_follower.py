"""A follower reads only what has changed, and knows the same as one who reads everything."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import postgres
import pytest
from objectives import make_spec, record

from automl.core import Begun, Ended, Moved, Noted, Proposed, SweepEvent, TrialState
from automl.errors import UsageError
from automl.ledger import Ledger
from workers.protocol import Ending, Outcome, Report

PAUSED = Outcome(0, 1, Ending.PAUSED, {"loss": 0.3}, seconds=1.0)
DONE = Outcome(1, 1, Ending.COMPLETED, {"loss": 0.2}, seconds=1.0)
# What is committed together, and the numbers of the trials that it changes.
COMMITS: list[tuple[list[SweepEvent], set[int]]] = [
    ([Proposed(0, {"x": 0.1}, "sobol"), Begun(0, 1, 1.0)], {0}),
    ([Report(0, 1, 0, 1, {"loss": 0.5}, 1.0), Proposed(1, {"x": 0.2}, "sobol")], {0, 1}),
    ([Noted("note", "nothing has changed")], set()),
    ([Begun(1, 1, 2.0), Report(1, 1, 0, 1, {"loss": 0.4}, 1.0)], {1}),
    ([Ended(PAUSED, TrialState.PAUSED, at=3.0), Ended(DONE, TrialState.COMPLETED, at=3.0)], {0, 1}),
    ([Moved(0, TrialState.WAITING, "promoted", 4.0)], {0}),
]


def check_follows(store: str | Path) -> None:
    with (
        closing(Ledger.open(store, create=True)) as writer,
        closing(Ledger.open(store, readonly=True)) as reader,
    ):
        writer.create_sweep(make_spec())
        writer.hold("test")
        follower = reader.follow("test")
        assert list(follower.refresh()) == []
        for events, changed in COMMITS:
            record(writer, "test", *events)
            assert set(follower.refresh()) == changed
            known, full = follower.snapshot(), reader.snapshot("test")
            assert list(known.events) == events
            assert {trial.number for trial in known.changed} == changed
            assert (list(known.trials), known.best) == (list(full.trials), full.best)
            assert (known.state, known.seconds) == (full.state, full.seconds)
            assert list(follower.refresh()) == []
        assert follower.epoch == 1, "everything was read once"


def test_a_follower_knows_what_a_reader_of_everything_knows(tmp_path: Path) -> None:
    check_follows(tmp_path)


@pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))
def test_the_same_on_a_server(url: str) -> None:
    check_follows(url)


def test_a_deleted_sweep_and_another_of_its_name_are_noticed(tmp_path: Path) -> None:
    with (
        closing(Ledger.open(tmp_path, create=True)) as writer,
        closing(Ledger.open(tmp_path, readonly=True)) as reader,
    ):
        follower = reader.follow("test")
        for epoch in (1, 2):
            writer.create_sweep(make_spec())
            writer.hold("test")
            record(writer, "test", Proposed(0, {"x": 0.1}, "sobol"))
            assert list(follower.refresh()) == [0]
            assert follower.epoch == epoch
            writer.release("test")
            writer.delete("test")
            with pytest.raises(UsageError, match="there is no sweep"):
                follower.refresh()
