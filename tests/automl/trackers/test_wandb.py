"""Weights & Biases gets a run for each trial, here as the files of its offline mode."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import automl

wandb = pytest.importorskip("wandb", reason="install automl-sweep[wandb]")


def objective(trial: Any) -> dict[str, float]:
    if trial.number == 1:
        raise automl.TrialFailure("out_of_memory")
    for step in (10, 20, 30):
        trial.report(step=step, loss=trial.params["lr"] / step)
    return {"loss": 0.5}


def records(file: Path) -> list[Any]:
    """What an offline run has written: a log of LevelDB, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, place, found, part = file.read_bytes(), 7, [], b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        part += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            found.append(wandb_internal_pb2.Record.FromString(part))
            part = b""
    return found


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_a_sweep_is_a_group_of_runs(offline: Path) -> None:
    result = automl.sweep(
        objective,
        {"lr": (0.1, 1.0)},
        "minimize loss",
        trials=3,
        suggester="random",
        dispatcher="inline",
        progress=False,
        store=offline / "store",
        name="grouped",
        trackers="wandb",
    )
    files = sorted(offline.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 3
    found = {}
    for file in files:
        logged = records(file)
        run = next(r.run for r in logged if r.WhichOneof("record_type") == "run")
        curve = [
            {"/".join(item.nested_key) or item.key: item.value_json for item in r.history.item}
            for r in logged
            if r.WhichOneof("record_type") == "history"
        ]
        (code,) = [r.exit.exit_code for r in logged if r.WhichOneof("record_type") == "exit"]
        found[run.display_name] = (
            run.run_group,
            [(int(p["step"]), float(p["loss"])) for p in curve],
            code,
        )
    for trial in result.trials:
        points = [(p.step, p.metrics["loss"]) for p in trial.reports]
        assert found[f"trial {trial.number}"] == ("grouped", points, 1 if trial.failure else 0)
