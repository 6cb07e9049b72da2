from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from search_spaces.errors import UsageError
from workers.__main__ import main
from workers.export import export
from workers.workloads.image_classification import ImageClassification

SMALL = ["data.train=120", "data.test=40", "max_epochs=1", "filters=16", "dense_units=128"]


def test_trains_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, target = tmp_path / "out", tmp_path / "export"
    assert main(["image_classification", *SMALL, "--out", str(out), "--export", str(target)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 2 after")
    ending = next(json.loads(line) for line in lines if line.startswith("{"))
    assert ending["ending"] == "completed"
    card = (target / "README.md").read_text()
    assert "| filters | 16 |" in card
    assert f"| accuracy | {ending['metrics']['accuracy']:.6g} |" in card
    for trial, where, problem in (
        (out, target, "not empty"),
        (tmp_path, out / "e", "no checkpoint"),
    ):
        with pytest.raises(UsageError, match=problem):
            export(ImageClassification({}, {}, {}), trial, where, {})


@pytest.mark.parametrize(
    "setting", ["filterz=16", "filters=17", "filters", "data.name=imagenet", "learning_rate=x"]
)
def test_wrong_settings_create_nothing(
    tmp_path: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["image_classification", setting, "--out", str(out)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not out.exists()


def test_an_interrupt_pauses_and_resume_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "workers", "graph_embedding", "data.families=30"]
    command += ["dimension=32", "evaluate_epochs=1", "max_epochs=400", "--out", f"{tmp_path}/out"]
    root, environment = Path(__file__).parents[2], {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("step 1 ")
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait() == 130
    assert json.loads(rest.splitlines()[-1])["ending"] == "paused"
    last = rest.count("step ") + 1
    again = [*command, "--resume", "max_epochs=" + str(last + 1)]
    result = subprocess.run(
        again, cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"step {last + 1} ") or f"\nstep {last + 1} " in result.stdout
    assert "step 1 " not in result.stdout


def test_names_and_commands_of_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "sentiment, translation" in capsys.readouterr().out
    assert main([]) == 2
    assert main(["sentimental"]) == 2
    assert "did you mean 'sentiment'?" in capsys.readouterr().err
    assert main(["translation", "translate", "--model", "/no/such/folder"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["translation", "train", "width=3"]) == 2
    assert "width must be one of" in capsys.readouterr().err
