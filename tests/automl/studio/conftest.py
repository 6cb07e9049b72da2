import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))  # report_sweeps.py

from report_sweeps import write_sweep
from studio_stores import Client, serving


@pytest.fixture
def store(tmp_path: Path) -> str:
    return write_sweep(tmp_path / "runs", 8)


@pytest.fixture
def client(store: str) -> Iterator[Client]:
    with serving(store) as served:
        yield served


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A studio of a sweep that no test changes."""
    with serving(write_sweep(tmp_path_factory.mktemp("quiet"), 8)) as served:
        yield served
