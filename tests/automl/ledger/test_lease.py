"""The lock of a sweep, and what is open once a ledger is closed."""

from __future__ import annotations

from pathlib import Path

import psutil

from automl.ledger import Ledger


def test_a_closed_ledger_has_no_open_file(tmp_path: Path) -> None:
    kept = Ledger.open(tmp_path, create=True)
    assert kept.sweeps() == []
    kept.close()
    opened = {file.path for file in psutil.Process().open_files()}
    assert not [path for path in opened if path.startswith(str(tmp_path))]
