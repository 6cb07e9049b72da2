from __future__ import annotations

from pathlib import Path

import pytest

from automl.dispatch import gpu_locks


@pytest.fixture
def lease_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the locks, for one test alone."""
    monkeypatch.setenv(gpu_locks.VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"
