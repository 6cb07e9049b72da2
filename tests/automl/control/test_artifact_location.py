"""Whether a run uses the location of artifacts that only its ledger names."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec

import automl
from automl.core import Budget
from automl.errors import UsageError
from automl.ledger import Ledger


def save(trial: Any) -> dict[str, float]:
    (trial.folder / "notes.txt").write_text("mine")
    return {"loss": float(trial.number)}


def test_code_that_resumes_a_spec_of_a_ledger_names_its_location_again(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    options: dict[str, Any] = {"objective": save, "dispatcher": "inline", "resume": True}
    ledger = Ledger.open(tmp_path / "store", create=True)
    spec = make_spec(trials=1, artifacts=str(place))
    ledger.create_sweep(spec)
    automl.sweeps.run(spec, ledger=ledger, **options)
    assert list(place.iterdir())
    shutil.rmtree(place)
    received = replace(ledger.spec(spec.name), budget=Budget(trials=2))
    with pytest.raises(UsageError, match=f"add --artifacts {place} "):
        automl.sweeps.run(received, ledger=ledger, **options)
    assert not place.exists(), "nothing was tried there"
    named = received.with_location(str(place))
    snapshot = automl.sweeps.run(named, ledger=ledger, **options)
    assert [str(trial.state) for trial in snapshot.trials] == ["completed"] * 2
    assert list(place.iterdir())
