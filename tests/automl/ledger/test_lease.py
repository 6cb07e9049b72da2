"""The lock of a sweep, and what is open once a ledger is closed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from automl.ledger import Ledger
from automl.ledger.hold import locked
from workers.files import Folder

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_lock_is_exclusive_and_released_once(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock = locked(Folder(tmp_path), "lock")
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert lock
    assert locked(Folder(tmp_path), "lock") is None
    lock.close()
    assert locked(Folder(tmp_path), "lock")


@linux
def test_a_closed_ledger_has_no_open_file(tmp_path: Path) -> None:
    kept = Ledger.open(tmp_path, create=True)
    assert kept.sweeps() == []
    kept.close()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not [path for path in opened if path.startswith(str(tmp_path))]
