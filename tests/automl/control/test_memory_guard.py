"""Memory is estimated before dispatch: what cannot fit by far is not dispatched."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec

from automl import sweeps
from automl.control.machine import REFUSAL_FACTOR, MemoryEstimate, MemoryGuard
from automl.core.resources import Resources
from automl.ledger import Ledger
from search_spaces import Choice, Space
from workers.memory import serve
from workers.protocol import Ending, Outcome

DATA, FIXED = {"train": 120, "test": 40}, {"max_epochs": 1, "dense_units": 16}


def test_what_cannot_fit_by_far_is_recorded_and_not_dispatched(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    spec = make_spec(
        goals="maximize accuracy",
        trials=2,
        space=Space(Choice("filters", [4, 2048], default=4)),
        workload="image_classification",
        data=DATA,
        fixed=FIXED,
        resources=Resources(memory=500_000_000),
    )
    ledger.create_sweep(spec)
    small, large = sweeps.run(spec, ledger=ledger, dispatcher="inline").trials
    assert small.failure is None, small.message
    assert 1e6 < small.metrics["estimated_memory_bytes"] < 200e6
    assert small.metrics["peak_memory_bytes"] > 0
    assert 1 <= len(small.details["memory_by_module_bytes"]) <= 10
    assert (large.failure, large.attempts) == ("out_of_memory", 1)
    assert large.message.startswith("not dispatched: it is estimated to need ")
    assert large.worker == "", "no worker has seen it"
    assert large.metrics["estimated_memory_bytes"] > 1e9
    modules = large.details["estimated_memory_by_module_bytes"]
    assert next(iter(modules)) == "block2.conv2", "the largest first"
    assert ledger.snapshot("test").trials[1].details == large.details


def test_the_estimating_process_answers_each_and_survives_what_cannot_be_estimated() -> None:
    about = {"workload": "image_classification", "data": DATA, "fixed": FIXED, "device": "cpu"}
    asked = [
        {"key": "a", "params": {"filters": 4}, "ranks": 1},
        {"key": "b", "params": {"precision": "x"}, "ranks": 1},
    ]
    answers = io.StringIO()
    serve(io.StringIO("\n".join(map(json.dumps, [about, *asked]))), answers)
    first, second = map(json.loads, answers.getvalue().splitlines())
    assert first["key"] == "a"
    assert first["peak_bytes"] > sum(first["parts"].values()) > 0
    assert second["key"] == "b"
    assert "precision" in second["error"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an estimate may take longer than a sweep waits for it."""
    monkeypatch.setattr("automl.control.machine.ESTIMATE_SECONDS", 250.0)


def guarded(space: Space, **options: Any) -> MemoryGuard:
    spec = make_spec(
        space=space, workload="image_classification", data=DATA, fixed=FIXED, **options
    )
    return MemoryGuard(spec, local=False)


def test_a_user_objective_is_not_estimated() -> None:
    guard = MemoryGuard(make_spec())
    assert guard.ready({"lr": 0.1}, 1)
    assert guard.estimate({"lr": 0.1}) is None


def test_only_an_estimate_far_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = 30_000_000
    for limit, refused in ((int(peak / REFUSAL_FACTOR) + 1, False), (int(peak / 2), True)):
        tight = guarded(Space(Choice("filters", [4])), resources=Resources(memory=limit))
        monkeypatch.setattr(tight, "estimate", lambda params: MemoryEstimate(peak, {}))
        assert bool(tight.refusal({"filters": 4}, 1)) is refused
        assert not refused or tight.refusal({"filters": 4}, 2).endswith("a rank")


def test_the_limit_is_of_a_rank() -> None:
    spec = make_spec()
    whole = MemoryGuard(spec).limit(1)
    assert whole
    assert MemoryGuard(spec).limit(2) == whole // 2
    elsewhere = MemoryGuard(spec, local=False)
    assert elsewhere.limit(1) is None
    for room in (4000, 9000, 6000):  # a trial may run on the roomiest node
        outcome = Outcome(0, 1, Ending.COMPLETED, memory_limit_bytes=room)
        assert elsewhere.add_estimate(outcome, {}) == outcome
    assert elsewhere.limit(1) == 9000
    limited = MemoryGuard(replace(spec, resources=Resources(memory=1000)), local=False)
    assert limited.limit(4) == 1000
