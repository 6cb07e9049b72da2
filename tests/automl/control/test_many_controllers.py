"""Eight controllers at once, each in its own process, on eight sweeps; some are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import postgres
import processes
import pytest
from objectives import make_spec, marked

from automl import sweeps
from automl.core.events import Begun
from automl.core.trial import TrialState
from automl.ledger import Ledger

NAMES = [f"sweep{i}" for i in range(8)]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store")
        return
    if reason := postgres.missing():
        pytest.skip(reason)
    with postgres.server() as server:
        yield server.database()


def control(store: str, name: str, folder: str) -> None:
    os.chdir(folder)
    ledger = Ledger.open(store)
    snapshot = sweeps.run(
        ledger.spec(name), ledger=ledger, objective=marked, dispatcher="inline", resume=True
    )
    ledger.close()
    os._exit(0 if snapshot.state == "finished" else 1)


def test_eight_controllers_in_one_store_count_exactly(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open(store, create=True)
    for name in NAMES:
        ledger.create_sweep(make_spec(name, trials=3))
    first = {name: processes.start(control, store, name, str(tmp_path)) for name in NAMES}
    deadline = time.monotonic() + 100
    while not all(ledger.trials(name) for name in NAMES):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for name in NAMES[:3]:
        first[name].kill()  # it may have ended
    for process in first.values():
        process.join()
    again = {name: processes.start(control, store, name, str(tmp_path)) for name in NAMES[:3]}
    for process in again.values():
        process.join()
    assert [first[name].exitcode for name in NAMES[3:]] == [0] * 5, (
        "no lock and no conflict ends a sweep"
    )
    assert [process.exitcode for process in again.values()] == [0] * 3

    assert sorted((info.name, info.state, info.num_trials) for info in ledger.sweeps()) == [
        (name, "finished", 3) for name in NAMES
    ]
    for name in NAMES:
        trials = ledger.trials(name)
        assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 3
        assert all([point.step for point in trial.reports] == [0, 1, 2, 3] for trial in trials)
        begun = [
            (event.trial, event.attempt)
            for event in ledger.events(name)
            if isinstance(event, Begun)
        ]
        assert len(set(begun)) == len(begun) == sum(trial.attempts for trial in trials)
