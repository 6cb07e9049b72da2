"""Memory is estimated before dispatch: what cannot fit by far is not dispatched."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from objectives import make_spec

from automl import sweeps
from automl.control.memory_guard import FAR, Forecast, Forecasts
from automl.core.spec import Resources
from automl.ledger import Ledger
from search_spaces import Choice, Float, Space
from workers.memory.server import serve

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
    assert "worker" not in large.details, "no worker has seen it"
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


def test_only_what_affects_memory_is_estimated_again() -> None:
    space = Space(Float("lr", 1e-4, 1e-1, affects={"quality"}), Choice("width", [8, 16]))
    forecasts = Forecasts(make_spec(space=space), enabled=False)
    assert forecasts.settled({"lr": 0.1, "width": 8}, 1), (
        "an objective of one's own is not estimated"
    )
    assert forecasts._key({"lr": 0.1, "width": 8}) == forecasts._key({"lr": 0.2, "width": 8})
    assert forecasts._key({"lr": 0.1, "width": 8}) != forecasts._key({"lr": 0.1, "width": 16})


def test_the_limit_is_of_a_rank() -> None:
    spec = make_spec()
    whole = Forecasts(spec).limit(1)
    assert whole
    assert Forecasts(spec).limit(2) == whole // 2
    assert Forecasts(spec, local=False).limit(1) is None
    limited = Forecasts(replace(spec, resources=Resources(memory=1000)), local=False)
    assert limited.limit(4) == 1000
    limited._enabled = True
    limited._found = {limited._key({}): Forecast(int(1000 * FAR), {})}
    assert not limited.refusal({}, 1), "what is only somewhat beyond it is tried"
    limited._found = {limited._key({}): Forecast(int(1000 * FAR) + 1, {})}
    assert limited.refusal({}, 2).endswith("a rank")
