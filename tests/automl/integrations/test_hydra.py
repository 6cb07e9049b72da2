"""A Hydra program whose jobs are the trials of a sweep: spaces, reports, stops, pauses, errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

hydra = pytest.importorskip("hydra", reason="install automl-sweep[hydra]")

from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: E402

import automl  # noqa: E402
from automl.integrations.hydra import encoded, parameter  # noqa: E402
from search_spaces import Choice, Float, Int  # noqa: E402

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
from pathlib import Path

import hydra
from automl import client
from hydra.core.config_store import ConfigStore

defaults = [{"override hydra/sweeper": "automl"}]
node = {"lr": 0.5, "kind": "a", "steps": 3, "defaults": defaults}
ConfigStore.instance().store(name="config", node=node)


@hydra.main(version_base=None, config_path=None, config_name="config")
def main(config):
    if config.kind == "broken":
        raise RuntimeError("no such kind")
    file = client.checkpoint_dir() / "step"
    begin = int(file.read_text()) if client.resumed() else 0
    for step in range(begin + 1, config.steps + 1):
        with open("trained.log", "a") as log:
            log.write(f"{config.lr} {step}\\n")
        file.write_text(str(step))
        if not client.report(step, loss=config.lr + 1 / step):
            return None
        time.sleep(0.1 if config.steps > 3 else 0)
    return config.lr + 1 / config.steps


main()
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    given = ["-m", "hydra.sweeper.suggester=random", "lr=tag(log, interval(0.01, 1.0))", *words]
    return subprocess.run(
        [sys.executable, "program.py", *given],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def trials(folder: Path) -> Any:
    return automl.load("sweep", folder / ".automl").trials


def test_jobs_run_as_trials_and_report(tmp_path: Path) -> None:
    done = run(tmp_path, "+hydra.sweeper.params.kind=[a,b]", "hydra.sweeper.trials=4")
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [trial.state for trial in found] == ["completed"] * 4
    assert {trial.params["kind"] for trial in found} <= {"a", "b"}
    for trial in found:
        assert [point.step for point in trial.reports] == [1, 2, 3]
        assert trial.metrics["loss"] == pytest.approx(trial.params["lr"] + 1 / 3)
    (results,) = tmp_path.glob("multirun/*/*/optimization_results.yaml")
    assert "best_params" in results.read_text()
    assert len(list(results.parent.glob("[0-9]"))) == 4


def test_jobs_in_other_processes_are_stopped_and_go_on(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "steps=12",
        "hydra.sweeper.trials=5",
        "+hydra.sweeper.params={kind: [a, b]}",
        "hydra.sweeper.stopper={name: asha, grace: 1, factor: 2}",
        "+hydra.sweeper.options={workers: 2, max_steps: 12}",
    )
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [trial.message for trial in found if trial.failure] == []
    assert {trial.params["kind"] for trial in found} <= {"a", "b"}
    assert min(len(trial.reports) for trial in found) < 12
    assert any(trial.state == "completed" for trial in found)
    trained = (tmp_path / "trained.log").read_text().split("\n")[:-1]
    assert len(trained) == len(set(trained)), "a step was trained twice"


def test_a_wrong_setting_and_a_job_that_raises(tmp_path: Path) -> None:
    done = run(tmp_path, "hydra.sweeper.stopper=ashha")
    assert (done.returncode, "did you mean 'asha'" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
    done = run(tmp_path, "kind=broken", "hydra.sweeper.trials=4")
    (first, *_) = trials(tmp_path)
    assert (first.failure, first.message) == ("crashed", "RuntimeError: no such kind")


def test_sweeps_in_hydras_words_are_parameters() -> None:
    def read(text: str) -> Any:
        return parameter(OverridesParser.create().parse_override(text))

    assert read("lr=tag(log, interval(0.001, 1))") == Float("lr", 0.001, 1.0, log=True)
    assert read("n=int(interval(1, 8))") == Int("n", 1, 8)
    assert read("n=range(2, 9, 3)") == Int("n", 2, 8, step=3)
    assert read("+db@src=choice(a, b)") == Choice("db_src", ["a", "b"])
    assert read("x=2,2.5,true,null") == Choice("x", [2, 2.5, True, "null"])
    assert [encoded(v) for v in (None, True, 1e-5, "a b", (1, 2))] == [
        *("null", "true", "1e-05", "a b", "[1, 2]")
    ]
