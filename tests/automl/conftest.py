from __future__ import annotations

from pathlib import Path

import pytest

from automl.ledger import Ledger


@pytest.fixture(scope="session", autouse=True)
def every_test_has_a_frozen_heap(frozen_heap: None) -> None:
    """Trials of these tests run in the process of the tests."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)
