from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from automl.ledger import Ledger

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/browser.py


@pytest.fixture(scope="session", autouse=True)
def every_test_has_a_frozen_heap(frozen_heap: None) -> None:
    """Trials of these tests run in the process of the tests."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path, create=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from browser import browser, executable

    path = executable()
    if path is None:
        pytest.skip("no Chromium: install one with python tests/browser.py")
    with browser(path) as running:
        yield running
