from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # report_sweeps.py

from studio_stores import Client, serving


@pytest.fixture
def store(tmp_path: Path) -> str:
    from report_sweeps import write_sweep

    return write_sweep(tmp_path / "runs", 8)


@pytest.fixture
def client(store: str) -> Iterator[Client]:
    with serving(store) as served:
        yield served
