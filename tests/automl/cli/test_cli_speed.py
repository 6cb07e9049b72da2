"""`automl speed` on a workload, a function and a program, through real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_sweeps import parsed, ran, refused

from automl.config import load
from automl.core import Trial, TrialState
from automl.dispatch.local import LocalDispatcher
from automl.workflows.speed import SPEED, measured

WORKLOAD = """\
name: images
workload: image_classification
data: {name: builtin, train: 200, test: 50}
fixed: {filters: 8, dense_units: 32}
space:
  learning_rate: auto
  matmul_precision:
    choices: [highest, medium]
goals: maximize accuracy
workers: 1
resources: {cpus: 1}
"""
FUNCTION = """\
name: own
space:
  rate: {low: 0.1, high: 0.9}
  pause: {choices: [0.01, 0.08], affects: [speed, memory]}
  memory: {choices: [small, large], affects: memory}
goals: minimize loss
constraints: [rate <= 0.8]
workers: 1
"""
OBJECTIVE = """\
import os, sys, time

RATES = os.path.abspath("rates")

def train(trial):
    with open(RATES, "a") as file:
        print(trial.params["rate"], file=file)
    if trial.params["memory"] == "large":
        raise MemoryError("too large")
    time.sleep(0.2)
    for step in range(10**6):
        trial.report(step=step, loss=1.0)
        time.sleep(trial.params["pause"])
"""
PROGRAM = """\
import json, os, sys, time

while True:
    step = globals().get("step", -1) + 1
    with open(os.environ["AUTOML_REPORTS"], "a") as file:
        file.write(json.dumps({"step": step, "loss": 1.0}) + "\\n")
    time.sleep(0.2)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Each sweep of a workload would start a process that estimates its memory.
    monkeypatch.setattr(LocalDispatcher, "estimates", False)
    files = {"workload.yaml": WORKLOAD, "own.yaml": FUNCTION}
    for name, text in {**files, "train.py": OBJECTIVE, "program.py": PROGRAM}.items():
        Path(name).write_text(text)


def test_a_workload_is_measured_and_the_settings_are_written() -> None:
    options = ("--time=1m", "--updates=4", "--write=fast.yaml")
    rows = parsed("speed", "workload.yaml", *options)
    assert sorted(row["params"]["matmul_precision"] for row in rows) == ["highest", "medium"]
    assert rows[0]["share_of_best"] == 1
    assert all(row["items_per_second"] > 0 and row["peak_memory_bytes"] > 0 for row in rows)
    best = rows[0]["params"]["matmul_precision"]
    kept = load("fast.yaml").spec
    assert kept.space.parameters["matmul_precision"].choices == (best,)
    assert "learning_rate" in kept.space.parameters


def test_a_function_is_measured_between_reports_and_out_of_memory_is_an_answer() -> None:
    rows = parsed("speed", "own.yaml", "--objective=train.py:train", "--time=1m")
    assert (len(rows), rows[0]["params"]) == (4, {"pause": 0.01, "memory": "small"})
    assert rows[1]["items_per_second"] < 13
    assert {row["failure"] for row in rows[2:]} == {"out_of_memory"}
    assert set(Path("rates").read_text().split()) == {"0.5"}
    assert not Path(".automl").exists()


def test_probes_of_one_setting_are_one_row_and_a_lucky_probe_does_not_come_first() -> None:
    def probe(number: int, pause: float, found: float | None) -> Trial:
        failure, metrics = ("crashed", {}) if found is None else (None, {SPEED: found})
        state = TrialState.FAILED if failure else TrialState.COMPLETED
        params = {"rate": 0.1 * number, "pause": pause}
        return Trial(number, params, state, metrics, failure=failure, peak_memory_bytes=number)

    found = [probe(0, 0.1, 10.0), probe(1, 0.1, 12.0), probe(2, 0.2, 13.0), probe(3, 0.1, None)]
    rows = measured([*found, probe(4, 0.3, None)], ["pause"], {"rate": 0.5, "pause": 0.1})
    assert [(row.params["pause"], row.items_per_second, row.probes) for row in rows] == [
        (0.1, 11.0, 3),
        (0.2, 13.0, 1),
        (0.3, 0.0, 1),
    ]
    assert [row.failure for row in rows] == [None, None, "crashed"]
    assert (rows[0].peak_memory_bytes, rows[1].share_of_best) == (3, 13 / 11)
    assert [row.params["pause"] for row in measured(found, ["pause"])] == [0.2, 0.1]


def test_a_program_that_never_ends_is_ended_after_its_reports() -> None:
    settings = ["space.pause=[0.01]", "space.memory={choices: [small, large], affects: memory}"]
    command = ("--", "python", "program.py")
    done = ran("speed", "own.yaml", *settings, "--time=1m", "--updates=2", *command)
    assert "of the best" in done.stdout
    assert "memory: [" in done.stdout


def test_what_cannot_be_done_is_told_before_the_first_probe() -> None:
    nothing = ("space.pause=[0.1]", "space.memory=[a, b]")
    said = refused("speed", "own.yaml", "--objective=train.py:train", *nothing)
    assert "nothing to try" in said
