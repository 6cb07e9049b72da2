"""The lock of a sweep, and what is open once a ledger is closed."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from automl.ledger import Ledger

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_a_closed_ledger_has_no_open_file(tmp_path: Path) -> None:
    kept = Ledger.open(tmp_path, create=True)
    assert kept.sweeps() == []
    kept.close()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not [path for path in opened if path.startswith(str(tmp_path))]
