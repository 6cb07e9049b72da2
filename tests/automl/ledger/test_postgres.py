"""The ledger on a real PostgreSQL: leases, restarts of the server, many controllers at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import postgres
import pytest
from objectives import make_spec, quick, record
from resealed import change_leases

from automl import sweeps
from automl.core.events import Begun, Proposed
from automl.errors import StoreError
from automl.ledger import Ledger, database

pytestmark = pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))
ROOT = Path(__file__).parents[3]


def change_holder(url: str, **values: Any) -> None:
    with closing(database.open_database(url, create=False, readonly=False)) as opened:
        change_leases(opened, **values)


def test_a_sweep_runs_and_is_read_back(url: str) -> None:
    ledger = Ledger.open(url, create=True)
    spec = make_spec(trials=4)
    ledger.create_sweep(spec, {"git_commit": "abc"})
    snapshot = sweeps.run(spec, ledger=ledger, objective=quick, dispatcher="inline")
    other = Ledger.open(url, readonly=True)
    assert repr(other.trials("test")) == repr(list(snapshot.trials))
    assert other.snapshot("test").state == "finished"
    assert len([event for event in other.events("test") if isinstance(event, Begun)]) == 4
    ledger.delete("test")
    assert other.sweeps() == []


def test_a_database_without_a_ledger_is_left_alone_until_something_is_created(url: str) -> None:
    for _ in range(2):
        with pytest.raises(database.NoStoreError, match="is no ledger of automl"):
            Ledger.open(url)


def test_a_server_that_is_not_there_is_a_store_error(url: str) -> None:
    with pytest.raises(StoreError, match="refused") as caught:
        Ledger.open("postgresql://me:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)


def test_a_lease_that_ran_out_is_taken_and_the_old_holder_is_fenced_off(
    url: str,
) -> None:
    first, second = Ledger.open(url, create=True), Ledger.open(url)
    first.create_sweep(make_spec())
    old = first.hold("test")
    record(first, "test", Proposed(0, {"lr": 0.1}, "bayes"))
    change_holder(url, host="elsewhere")
    with pytest.raises(StoreError, match="held by process"):
        second.hold("test")  # it gave a sign of life a moment ago
    change_holder(url, heartbeat=time.time() - 3600)
    new = second.hold("test")
    old.state.apply(Proposed(1, {"lr": 0.9}, "bayes"))
    with pytest.raises(StoreError, match="another controller has taken the sweep over"):
        old.commit()
    new.state.apply(Proposed(1, {"lr": 0.2}, "bayes"))
    new.commit()
    assert [trial.params["lr"] for trial in second.trials("test")] == [0.1, 0.2]
    first.release("test")  # which must not free what the other one holds
    with pytest.raises(StoreError, match="held by process"):
        first.hold("test")


def test_tables_that_many_create_at_once_are_there_once(
    server: postgres.PostgresServer, url: str
) -> None:
    def create() -> None:
        Ledger.open(url, create=True).create_sweep(make_spec())

    each([create] * 8)
    assert [info.name for info in Ledger.open(url).sweeps()] == [
        "test",
        *(f"test-{i}" for i in range(2, 9)),
    ]


def each(actions: list[Callable[[], Any]]) -> None:
    """Do all at once, in threads; the first error is raised."""
    errors: list[Exception] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
