"""A PostgreSQL server that restarts while a sweep writes to it and reads from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import postgres
import pytest
from objectives import loss_of, make_spec, record

from automl import sweeps
from automl.core.events import Begun, Command, Proposed
from automl.core.trial import TrialState
from automl.ledger import Hold, Ledger
from workers.context import Context

pytestmark = pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))


def test_a_server_that_is_restarted_again_and_again_costs_a_sweep_nothing(
    server: postgres.PostgresServer, url: str
) -> None:
    """Restarted as by a crash while a sweep commits several times for each of its reports."""
    spec = make_spec(trials=6)
    ledger = Ledger.open(url, create=True)
    ledger.create_sweep(spec)
    done, reported = threading.Event(), threading.Event()
    restarts = 0

    def restart() -> None:
        nonlocal restarts
        reported.wait(60)
        while restarts < 2 and not done.wait(0.2):
            server.stop()
            server.start()
            restarts += 1

    def objective(trial: Context) -> dict[str, float]:
        for step in range(8):
            time.sleep(0.02)
            trial.report(step=step, loss=loss_of(trial.params, step))
            reported.set()
        return {"loss": loss_of(trial.params, 8)}

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        snapshot = sweeps.run(spec, ledger=ledger, objective=objective, dispatcher="inline")
    finally:
        done.set()
        thread.join()
    assert restarts == 2
    assert snapshot.state == "finished"
    kept = Ledger.open(url, readonly=True)
    assert repr(kept.trials("test")) == repr(list(snapshot.trials))
    assert [trial.state for trial in kept.trials("test")] == [TrialState.COMPLETED] * 6
    assert all([p.step for p in trial.reports] == list(range(8)) for trial in kept.trials("test"))
    assert all(trial.attempts == 1 for trial in kept.trials("test"))
    assert len([event for event in kept.events("test") if isinstance(event, Begun)]) == 6


READS: dict[str, Callable[[Ledger, Hold], Any]] = {
    "look": lambda ledger, recorder: (
        recorder.look() is None
        and [one.kind for one in recorder.state.requests.values()] == ["enqueue"]
    ),
    "snapshot": lambda ledger, recorder: ledger.snapshot("test").state == "running",
    "events": lambda ledger, recorder: any(
        isinstance(event, Begun) for event in ledger.events("test")
    ),
}


@pytest.mark.parametrize("read", READS)
def test_what_a_sweep_reads_while_its_server_is_away_is_waited_for(
    server: postgres.PostgresServer, url: str, read: str
) -> None:
    ledger = Ledger.open(url, create=True)
    ledger.create_sweep(make_spec())
    recorder = ledger.hold("test")
    record(ledger, "test", Proposed(0, {"lr": 0.1}, "bayes"), Begun(0, 1, time.time()))
    Ledger.open(url).send("test", Command("enqueue", {"lr": 0.5}))
    server.stop()
    again = threading.Timer(0.3, server.start)
    again.start()
    try:
        assert READS[read](ledger, recorder)
    finally:
        again.join()
        ledger.release("test")
