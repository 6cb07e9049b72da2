"""The studio beside a controller on PostgreSQL: it reads, follows and acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import postgres
import pytest
from report_sweeps import write_sweep
from studio_stores import controller, run_trial, serving

from automl.ledger import Ledger

pytestmark = pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))


def test_a_studio_on_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the files of trials are beside the database, in .automl
    with postgres.server() as server:
        store: Any = server.database()
        write_sweep(store, 8)
        with serving(store) as client:
            assert [sweep["name"] for sweep in client.get("/api/sweeps")] == ["toy"]
            first = client.get("/api/sweeps/toy/table")
            assert len(first["rows"]) == 8
            with controller(store) as recorder:
                number = run_trial(recorder, -5.0)
                since = f"since={first['version']}&epoch={first['epoch']}"
                again = client.get(f"/api/sweeps/toy/table?{since}")
                assert [row[0] for row in again["rows"]] == [number]
                assert client.get("/api/sweeps/toy")["best"]["number"] == number
            status, found = client.post("toy/enqueue", {"trial": number, "by": "ann"})
            assert status == 200, found
        ledger = Ledger.open(store)
        assert [(one.kind, one.by) for one in ledger.commands("toy")] == [("enqueue", "ann")]
        ledger.close()
