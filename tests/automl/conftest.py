from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def every_test_has_a_frozen_heap(frozen_heap: None) -> None:
    """Trials of these tests run in the process of the tests."""
