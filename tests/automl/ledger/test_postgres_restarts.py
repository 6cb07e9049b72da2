"""A PostgreSQL server that restarts while a sweep writes to it and reads from it."""

from __future__ import annotations

import threading
import time

import postgres
import pytest
from objectives import loss_of, make_spec

from automl import sweeps
from automl.core import Begun, TrialState
from automl.ledger import Ledger
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
    assert (restarts, snapshot.state) == (2, "finished")
    kept = Ledger.open(url, readonly=True)
    assert repr(kept.trials("test")) == repr(list(snapshot.trials))
    assert [trial.state for trial in kept.trials("test")] == [TrialState.COMPLETED] * 6
    assert all([p.step for p in trial.reports] == list(range(8)) for trial in kept.trials("test"))
    assert all(trial.attempts == 1 for trial in kept.trials("test"))
    assert len([event for event in kept.events("test") if isinstance(event, Begun)]) == 6
