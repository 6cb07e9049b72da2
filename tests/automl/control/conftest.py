from __future__ import annotations

from pathlib import Path

import pytest

from automl.dispatch import gpus


@pytest.fixture
def lease_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the locks, for one test alone."""
    monkeypatch.setenv(gpus.VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"
