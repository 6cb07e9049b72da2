"""A PostgreSQL server of its own for each test module, and a new database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.server() as running:
        yield running


@pytest.fixture
def url(server: postgres.PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)  # the files of trials are in .automl of the current folder
    return server.database()
