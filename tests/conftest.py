"""Options and fixtures that every test can use."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data-dir",
        default=Path(__file__).parents[2] / "shared" / "data",
        type=Path,
        help="folder of the real data sets; tests that need one are skipped where it is absent",
    )


@pytest.fixture
def data_dir(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.config.getoption("--data-dir")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; name its folder with --data-dir")
    return folder
