"""`automl doctor`, `workloads`, and `space`: what there is to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from automl.cli import cli

ROOT = Path(__file__).parents[3]


def automl(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def parsed(*arguments: str) -> Any:
    done = automl(*arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_doctor_says_what_each_strategy_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parsed("doctor")
    assert found["hardware"]["num_cpus"] >= 1
    abilities = {(a["kind"], a["name"]): a for a in found["abilities"]}
    assert abilities["precision", "fp32"]["lacks"] == ""
    assert abilities["strategy", "single"]["lacks"] == ""
    assert abilities["store", ".automl"]["lacks"] == ""
    if not found["hardware"]["gpus"]:
        assert "CUDA" in abilities["precision", "tf32"]["lacks"]
    assert "strategy ddp" in automl("doctor").stdout
    assert list(tmp_path.iterdir()) == []


def test_doctor_tells_of_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = parsed("doctor", "--store", str(tmp_path / "file" / "runs"))
    assert "is not a folder" in found["abilities"][-1]["lacks"]


def test_the_space_of_a_configuration_is_shown_with_what_is_left_out() -> None:
    config = str(ROOT / "configs" / "nmt.yaml")
    found = parsed("space", config)
    rate = next(p for p in found["parameters"] if p["name"] == "learning_rate")
    assert (rate["type"], rate["log"]) == ("float", True)
    assert found["workload"] == "translation"
    assert {"parameter", "value", "reason"} == set(found["dropped"][0])
    assert found["default"]["precision"] == "fp32"
    everything = parsed("space", config, "space=auto")
    assert len(everything["parameters"]) > len(found["parameters"])
    table = automl("space", config).stdout
    assert "left out on this hardware:" in table
    assert "on a log scale" in table


def test_a_missing_data_file_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    done = automl(
        "sweep", str(ROOT / "configs" / "nmt.yaml"), "data.name=multi30k", f"data.dir={folder}"
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert str(folder) in done.stderr
