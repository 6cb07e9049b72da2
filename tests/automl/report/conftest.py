"""A browser to look at the report with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests/browser.py


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from browser import browser, executable

    path = executable()
    if path is None:
        pytest.skip("no Chromium: install one with python tests/browser.py")
    with browser(path) as running:
        yield running
