"""A follower reads only what has changed, and knows the same as one who reads everything."""

from __future__ import annotations

import random
from pathlib import Path

import postgres
import pytest
from objectives import make_spec

from automl.core.events import Begun, Ended, Moved, Proposed, SweepEvent
from automl.core.trial import Trial, TrialState
from automl.errors import UsageError
from automl.ledger import Hold, Ledger
from workers.protocol import Ending, Outcome, Report


def next_event(rng: random.Random, trials: list[Trial]) -> SweepEvent:
    """Something that may happen next."""
    number = rng.randrange(len(trials) + 1)
    if number == len(trials):
        return Proposed(number, {"x": rng.random()}, "sobol")
    trial = trials[number]
    if trial.state is TrialState.RUNNING and rng.random() < 0.8:
        late = trial.reports[-1].sequence + 1 if trial.reports else 0
        loss = {"loss": rng.random()}
        return Report(number, trial.attempts, late, rng.randrange(50), loss, 1.0)
    if trial.state is TrialState.RUNNING:
        ending = rng.choice([Ending.COMPLETED, Ending.PAUSED])
        outcome = Outcome(number, trial.attempts, ending, {"loss": rng.random()}, seconds=1.0)
        return Ended(outcome, TrialState(str(ending)), at=2.0)
    if trial.state is TrialState.WAITING:
        return Begun(number, trial.attempts + 1, 1.0)
    if trial.state is TrialState.PAUSED:
        return Moved(number, TrialState.WAITING, "promoted", 1.0)
    return Proposed(len(trials), {"x": rng.random()}, "sobol")


def happen(rng: random.Random, recorder: Hold, count: int) -> None:
    for _ in range(count):
        recorder.apply(next_event(rng, recorder.state.trials))
    recorder.commit(float(len(recorder.state.trials)))


def check_follows(store: str | Path, seed: int) -> None:
    rng = random.Random(seed)
    writer = Ledger.open(store, create=True)
    spec = make_spec(trials=100)
    writer.create_sweep(spec)
    recorder = writer.hold(spec.name)
    reader = Ledger.open(store, readonly=True)
    follower = reader.follow(spec.name)
    assert list(follower.refresh()) == []
    num_events = len(list(reader.events(spec.name)))
    for _ in range(12):
        before = {trial.number: trial for trial in reader.trials(spec.name)}
        happen(rng, recorder, rng.randrange(1, 30))
        changed = set(follower.refresh())
        full = reader.snapshot(spec.name)
        known = follower.snapshot()
        assert {t.number for t in full.trials if before.get(t.number) != t} == changed
        assert changed <= {trial.number for trial in known.changed}
        assert list(known.events) == list(reader.events(spec.name))[num_events:]
        num_events += len(known.events)
        assert list(known.trials) == list(full.trials)
        assert known.best == full.best
        assert (known.state, known.seconds) == (full.state, full.seconds)
        assert list(follower.refresh()) == []
    assert follower.epoch == 1, "everything was read once"
    writer.close()
    reader.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_knows_what_a_reader_of_everything_knows(tmp_path: Path, seed: int) -> None:
    check_follows(tmp_path, seed)


@pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))
def test_the_same_on_a_server(url: str) -> None:
    check_follows(url, 7)


def test_a_deleted_sweep_and_another_of_its_name_are_noticed(tmp_path: Path) -> None:
    writer = Ledger.open(tmp_path, create=True)
    spec = make_spec(trials=5)
    writer.create_sweep(spec)
    happen(random.Random(0), writer.hold(spec.name), 20)
    writer.release(spec.name)
    reader = Ledger.open(tmp_path, readonly=True)
    follower = reader.follow(spec.name)
    assert follower.refresh()
    writer.delete(spec.name)
    with pytest.raises(UsageError, match="there is no sweep"):
        follower.refresh()
    writer.create_sweep(spec)
    happen(random.Random(1), writer.hold(spec.name), 1)
    assert list(follower.refresh()) == [0]
    assert follower.epoch == 2
    writer.close()
    reader.close()
