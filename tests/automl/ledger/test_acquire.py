"""Which controller may acquire a sweep of a server; tested on SQLite without its file lock."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from objectives import make_spec
from resealed import change_leases

from automl.core.events import Proposed
from automl.errors import StoreError, UsageError
from automl.ledger import Ledger
from automl.ledger.ledger import locked


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Ledger, Ledger]:
    """Two views of one store with one sweep."""
    both = (Ledger.open(tmp_path, create=True), Ledger.open(tmp_path))
    for one in both:
        one._lockable = False
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


def test_a_dead_holder_on_this_host_is_replaced_at_once(stores: tuple[Ledger, Ledger]) -> None:
    first, second = stores
    first.hold("test")
    change(first, process_started=1.0)  # its number belongs to another process by now
    second.hold("test")


@pytest.mark.parametrize(
    ("age", "lives"), [(-5.0, True), (10.0, True), (50.0, True), (61.0, False)]
)
def test_a_holder_on_another_host_is_alive_if_its_heartbeat_is_recent(
    stores: tuple[Ledger, Ledger], age: float, lives: bool
) -> None:
    first, second = stores
    old = first.hold("test")
    change(first, host="elsewhere", heartbeat=time.time() - age)
    assert second.snapshot("test").state == ("running" if lives else "interrupted")
    if lives:
        with pytest.raises(StoreError, match="on elsewhere"):
            second.hold("test")
        return
    taken = second.hold("test")
    with pytest.raises(StoreError, match="another controller has taken the sweep over"):
        old.commit()
    taken.state.apply(Proposed(0, {"lr": 0.1}, "bayes"))
    taken.commit()
    assert len(first.trials("test")) == 1


def test_of_two_that_come_at_once_one_holds_the_sweep(stores: tuple[Ledger, Ledger]) -> None:
    told: list[str] = []

    def hold(ledger: Ledger) -> None:
        try:
            ledger.hold("test")
        except StoreError as error:
            told.append(str(error))

    threads = [threading.Thread(target=hold, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (refused,) = told
    assert "held by process" in refused
    assert sum("test" in one._held for one in stores) == 1


def test_a_held_lock_without_a_holder_row_is_another_process(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    with pytest.raises(UsageError, match=r"no sweep named 'test' in .*: it has no sweeps yet"):
        ledger.trials("test")
    ledger.create_sweep(make_spec())
    lock = locked(ledger.files("test"), "controller.lock")
    assert lock
    with pytest.raises(StoreError, match="'test' is held by another process: wait for it"):
        ledger.hold("test")
    lock.close()


def test_a_closed_ledger_has_no_open_file(tmp_path: Path) -> None:
    kept = Ledger.open(tmp_path, create=True)
    assert kept.sweeps() == []
    kept.close()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not [path for path in opened if path.startswith(str(tmp_path))]
