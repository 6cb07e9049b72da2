"""Sweeps whose files are on a real S3 server: killed, resumed elsewhere, exported, deleted."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from cli_sweeps import ROOT, Start, parsed, ran, refused, until

from workers.artifacts import Copies

OBJECTIVE = ("--objective", "function.py:objective")
CONFIG = """\
name: kept
goals: minimize loss
space: {learning_rate: {low: 1e-4, high: 1e-2, log: true, default: 3e-3}}
budget: {trials: 1}
suggester: sobol
workers: 1
"""
FUNCTION = """\
import time

def objective(trial):
    state = trial.restore() or {"step": 0, "begun": []}
    state["begun"].append(state["step"])
    for step in range(state["step"], 6):
        trial.report(step=step, loss=1.0 / (step + 1))
        state["step"] = step + 1
        trial.save(state)
        while step == 3 and trial.assignment.attempt == 1:
            time.sleep(1.0)
    (trial.folder / "model.txt").write_text(f"begun at {state['begun']}")
    return {"loss": 0.1}
"""


@pytest.fixture
def place(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The location of a test; the working directory has the configuration and the programs."""
    (tmp_path / "kept.yaml").write_text(CONFIG)
    (tmp_path / "function.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "workers"))
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "workers")])
    monkeypatch.setenv("PYTHONPATH", path)
    return f"{s3}/{tmp_path.name}"


def files_at(place: str) -> dict[str, list[str]]:
    """The files of the newest copy of each trial below a location, by the trial's place."""
    trials = {n.rsplit("/", 2)[0] for n in Copies(place).sizes() if n.endswith(".json")}
    copies = {trial: Copies(f"{place}/{trial}") for trial in trials}
    return {trial: sorted(one.read(one.found()[0]).files) for trial, one in copies.items()}


def killed_and_moved(process: Start, place: str, wanted: str, *arguments: str) -> Path:
    """Kill a sweep with -9 once a file is at the location; returns its ledger in a new store."""
    path = os.environ["PYTHONPATH"]
    running = process(
        "sweep", "kept.yaml", "--dispatcher", "local", "--artifacts", place, *arguments,
        PYTHONPATH=path,
    )  # fmt: skip
    until(lambda: running.poll() is not None or wanted in str(files_at(place)))
    assert running.poll() is None, running.communicate()
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    for pid in (running.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    running.wait()
    moved = Path("moved")
    shutil.copytree(".automl", moved, ignore=shutil.ignore_patterns("sweeps"))
    shutil.rmtree(".automl")
    return moved


def test_a_function_goes_on_from_what_it_saved_and_its_files_are_exported(
    place: str, process: Start
) -> None:
    moved = killed_and_moved(process, place, "checkpoints/saved/00000004/", *OBJECTIVE)
    store = ("--store", str(moved))
    said = refused("resume", "kept", *OBJECTIVE, *store)
    assert f"the files of the sweep kept are in {place}" in said
    assert f"add --artifacts {place} " in said
    ran("resume", "kept", *OBJECTIVE, "--dispatcher", "local", *store, "--artifacts", place)
    refused("export", "kept", *store)
    exported = parsed("export", "kept", *store, "--artifacts", place)
    assert Path("kept-model/model.txt").read_text() == "begun at [0, 4]"
    assert "checkpoints/saved/state.json" in exported["files"]
    secrets = [p for p in moved.rglob("*") if p.is_file() and b"-of-the-test" in p.read_bytes()]
    assert secrets == []


def test_confirm_writes_elsewhere_only_if_the_place_is_named(place: str) -> None:
    Path("function.py").write_text(FUNCTION.replace("attempt == 1", "attempt == 0"))
    options = (*OBJECTIVE, "--dispatcher", "inline")
    ran("sweep", "kept.yaml", *options, "--artifacts", place)
    before = Copies(place).sizes()
    ran("confirm", "kept", *options, "--seeds", "2")
    assert Copies(place).sizes() == before
    ran("confirm", "kept", *options, "--seeds", "3", "--artifacts", place)
    added = Copies(place).sizes().keys() - before.keys()
    assert {name.split("/")[0][:12] for name in added} == {"kept.confirm"}


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("s3://no-such-bucket/a", "artifacts: s3://no-such-bucket/a cannot be written"),
        ("s3://me:word@bucket/a", "artifacts: a password or an option in the URL"),
        ("/proc/kept", "artifacts: /proc/kept cannot be written"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_before_anything_is_created(
    place: str, where: str, says: str
) -> None:
    said = refused("sweep", "kept.yaml", *OBJECTIVE, "--artifacts", where)
    assert says in said
    assert "word@" not in said
    assert not Path(".automl").exists()
