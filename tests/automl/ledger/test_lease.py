"""Whether the process that holds a sweep still runs, and its lock."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from automl.ledger import Ledger
from automl.ledger.hold import FileLock, alive
from workers.files.folder import Folder

HERE, ELSEWHERE = socket.gethostname(), "another.host"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize(
    ("age", "lives"), [(10.0, True), (59.9, True), (60.0, False), (-4.9, True), (-5.0, False)]
)
def test_a_holder_on_another_host_is_alive_if_its_heartbeat_is_recent(
    age: float, lives: bool
) -> None:
    assert alive(ELSEWHERE, 1, None, age) is lives


def test_a_lock_is_exclusive_and_released_once(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock = FileLock(Folder(tmp_path), "lock")
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    other = FileLock(Folder(tmp_path), "lock")
    assert lock.acquire() is True
    assert other.acquire() is False
    lock.release()
    assert other.acquire() is True
    taken = os.open(tmp_path / "other", os.O_CREAT)  # gets the number that the lock's file had
    lock.release()
    os.close(taken)
    other.release()


@linux
def test_a_closed_ledger_has_no_open_file(tmp_path: Path) -> None:
    kept = Ledger.open(tmp_path, create=True)
    assert kept.sweeps() == []
    kept.close()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not [path for path in opened if path.startswith(str(tmp_path))]
