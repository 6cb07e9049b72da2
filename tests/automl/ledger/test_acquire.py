"""Which controller may acquire a sweep of a server; tested on SQLite without its file lock."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec
from resealed import change_leases

from automl.core.events import Proposed
from automl.errors import StoreError, UsageError
from automl.ledger import Ledger
from automl.ledger import hold as module
from automl.ledger import ledger as ledger_module
from automl.ledger.hold import FileLock


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ledger, Ledger]:
    """Two views of one store with one sweep."""
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.4)
    both = (Ledger.open(tmp_path, create=True), Ledger.open(tmp_path))
    for one in both:
        one._lockable, one._is_server = False, True
    both[0].create_sweep(make_spec())
    return both


def change(ledger: Ledger, **values: Any) -> None:
    change_leases(ledger._database, **values)


def test_the_error_names_the_holder(stores: tuple[Ledger, Ledger]) -> None:
    first, second = stores
    first.hold("test")
    with pytest.raises(
        StoreError, match=f"held by process {os.getpid()} on {socket.gethostname()}"
    ):
        second.hold("test")
    change(first, host="elsewhere")
    with pytest.raises(StoreError, match="on elsewhere"):
        second.hold("test")


def test_a_dead_holder_on_this_host_is_replaced_at_once(
    stores: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 1e9)
    first, second = stores
    first.hold("test")
    change(first, process_started=1.0)  # its number belongs to another process by now
    second.hold("test")


def test_a_holder_with_an_old_heartbeat_is_watched_before_it_is_replaced(
    stores: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stores
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    recorder = first.hold("test")
    monkeypatch.undo()
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.4)
    change(first, heartbeat=time.time() - 3600)

    def live() -> None:
        recorder.commit()
        change(first, heartbeat=time.time() - 3600)  # its clock is an hour behind

    timer = threading.Timer(0.1, live)
    timer.start()
    with pytest.raises(StoreError, match="on elsewhere"):
        second.hold("test")
    timer.join()
    change(first, heartbeat=time.time() - 3600)
    begun = time.monotonic()
    taken = second.hold("test")
    assert time.monotonic() - begun >= 0.4, "as long as it is watched"
    with pytest.raises(StoreError, match="another controller has taken the sweep over"):
        recorder.commit()
    taken.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    taken.commit()
    assert len(first.trials("test")) == 1


@pytest.mark.parametrize("held_before", [True, False])
def test_a_controller_that_comes_between_check_and_acquire_wins(
    stores: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch, held_before: bool
) -> None:
    first, second = stores
    if held_before:
        first.hold("test")
        first.release("test")
    look = module.wait_until_free
    calls: list[str] = []

    def slow(read: Any) -> Any:
        seen = look(read)
        calls.append("test")
        if len(calls) == 1:
            first.hold("test")
        return seen

    monkeypatch.setattr(ledger_module, "wait_until_free", slow)
    with pytest.raises(StoreError, match="held by process"):
        second.hold("test")
    assert "test" not in second._held


def test_a_held_lock_without_a_holder_row_is_another_process(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    with pytest.raises(UsageError, match=r"no sweep named 'test' in .*: it has no sweeps yet"):
        ledger.trials("test")
    ledger.create_sweep(make_spec())
    lock = FileLock(ledger.files("test"), "controller.lock")
    assert lock.acquire()
    with pytest.raises(StoreError, match="'test' is held by another process: wait for it"):
        ledger.hold("test")
    lock.release()
