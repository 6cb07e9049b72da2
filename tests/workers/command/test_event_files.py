"""Scalars of TensorBoard's event files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import TrialFailure
from workers.command.arguments import Braces
from workers.command.metrics import Collector
from workers.command.tensorboard import EventFiles, place_of

tensorboard = pytest.importorskip("torch.utils.tensorboard")


def collected() -> tuple[list[tuple[int, dict[str, float]]], Collector]:
    found: list[tuple[int, dict[str, float]]] = []
    return found, Collector(lambda step, m: found.append((step, dict(m))), lambda words: None)


def test_scalars_are_read_while_they_are_written(tmp_path: Path) -> None:
    found, collector = collected()
    files = EventFiles(tmp_path / "runs", time.time() - 2, collector)
    files.read()
    writer = tensorboard.SummaryWriter(str(tmp_path / "runs" / "deep"))
    for step in (1, 2):
        writer.add_scalar("val/loss", 1 / step, step)
        writer.add_scalar("acc", step / 4, step)
    writer.add_text("note", "no number")
    writer.flush()
    files.read()
    assert found == [(1, {"val/loss": 1.0, "acc": 0.25}), (2, {"val/loss": 0.5, "acc": 0.5})]
    writer.add_scalar("val/loss", 0.25, 4)
    writer.close()
    files.read()
    assert found[2:] == [(4, {"val/loss": 0.25})]


def test_files_of_earlier_runs_links_and_noise_are_left_alone(tmp_path: Path) -> None:
    found, collector = collected()
    writer = tensorboard.SummaryWriter(str(tmp_path / "elsewhere"))
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    written = next((tmp_path / "elsewhere").iterdir())
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "link.tfevents").symlink_to(written)
    (runs / "noise.tfevents").write_bytes(os.urandom(1000))
    old = runs / "old.tfevents"
    old.write_bytes(written.read_bytes())
    os.utime(old, (1.0, 1.0))
    EventFiles(runs, time.time() - 60, collector).read()
    assert found == []


def test_the_folder_of_a_trial() -> None:
    known = {"AUTOML_TRIAL": "7", "HOME": "/secret"}

    def folder(text: str) -> Any:
        return place_of(text, Braces({"lr": 0.5, "off": None}), known, "/work")

    assert folder("runs/{lr}") == Path("/work/runs/0.5")
    assert folder("runs/$AUTOML_TRIAL/$HOME") == Path("/work/runs/7/$HOME")
    with pytest.raises(TrialFailure, match="names no place"):
        folder("{off}")


def test_a_command_that_writes_event_files(command: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys; from torch.utils.tensorboard import SummaryWriter\n"
        "writer = SummaryWriter(sys.argv[1])\n"
        "for step in range(3): writer.add_scalar('loss', 1 / (step + 1), step)\n"
        "writer.close()\n"
    )
    import sys

    done = command(
        sys.executable,
        str(script),
        "runs/{x}",
        params={"x": 3},
        reports={"tensorboard": "runs/{x}"},
        folder=str(tmp_path),
        goal="loss",
    )
    assert done.ending == "completed", done.message
    assert [(r.step, r.metrics["loss"]) for r in command.reports] == [
        (0, 1.0),
        (1, 0.5),
        (2, pytest.approx(1 / 3)),
    ]
