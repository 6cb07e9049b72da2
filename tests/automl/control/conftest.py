from __future__ import annotations

from pathlib import Path

import pytest

from automl.dispatch import leases


@pytest.fixture
def lease_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the leases, for one test alone."""
    monkeypatch.setenv(leases.VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"
