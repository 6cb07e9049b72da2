"""`automl confirm` and `export`: the best configurations trained again, and taken away."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import parsed, ran
from click.testing import Result
from safetensors.torch import load_file

from automl import Optimizer, load
from automl.core.goals import Goal
from automl.report.record import Confirmation, Repeats

OBJECTIVE = """\
import os
import random
from pathlib import Path

def clear(trial):
    noise = random.Random(trial.seed).gauss(0, 0.01)
    Path(trial.folder, "weights.txt").write_text(str(trial.params["x"]))
    return {"loss": trial.params["x"] ** 2 + noise}

def saves(trial):
    import numpy
    trial.save({"w": numpy.full(2, -1.0)})
    trial.save({"w": numpy.full(2, trial.params["x"])})
    Path(trial.checkpoint_dir, "model.txt").write_text(str(trial.params["x"]))
    return {"loss": trial.params["x"]}

def lucky(trial):  # x = 2 has luck during the sweep only
    luck = 20 if "LUCK" in os.environ and trial.params["x"] == 2 else 0
    return {**clear(trial), "loss": clear(trial)["loss"] - luck, "process": os.getpid()}
"""
CONFIG = """\
name: toy
space:
  x: [0.0, 1.0, 2.0, 3.0]
goals: minimize loss
suggester: sobol
budget: {trials: 4}
workers: 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    (tmp_path / "toy.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(verb: str, name: str, objective: str, *more: str) -> Result:
    return ran(verb, name, "--dispatcher", "inline", "--objective", f"mine.py:{objective}", *more)


def test_a_clear_lead_is_confirmed_and_told(folder: Path) -> None:
    run("sweep", "toy.yaml", "clear")
    assert "confirmation" not in parsed("best", "toy")
    found = json.loads(run("confirm", "toy", "clear", "--json").stdout)
    assert [len(repeat["values"]) for repeat in found["repeats"]] == [3, 3, 3]
    assert found["exceeds_noise"] is True
    assert found["lead"]["low"] > 0
    assert len({value for repeat in found["repeats"] for value in repeat["values"]}) == 9, (
        "each run has its own seed"
    )
    assert parsed("best", "toy")["confirmation"]["exceeds_noise"] is True
    assert "exceeds the noise" in ran("best", "toy").stdout
    ran("report", "toy", "-o", "toy.html")
    assert "exceeds the noise" in (folder / "toy.html").read_text()


def test_what_new_runs_refute_is_recommended_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCK", "1")
    run("sweep", "toy.yaml", "lucky")
    before = load("toy")
    assert before.recommended.params == {"x": 2.0}
    assert before.recommended.confirmed is False
    monkeypatch.delenv("LUCK")
    done = run("confirm", "toy", "lucky", "--json")
    (new,) = [one for one in json.loads(done.stdout)["repeats"] if one["mean"] < 0.5]
    advice = before.recommended
    assert advice.params == {"x": 0.0}, "the result from before knows the new runs, too"
    assert (advice.trials, advice.runs, advice.mean) == ((new["trial"],), 3, new["mean"])
    assert advice.interval is not None
    assert -0.1 < advice.interval[0] < advice.mean < advice.interval[1] < 0.1
    first = advice.lines(before.snapshot)[0]
    assert "by 3 new runs of automl confirm" in first
    assert " ".join(ran("best", "toy").stdout.split()).startswith(first)
    best = parsed("best", "toy")
    assert (best["params"], best["recommended"]["params"]) == ({"x": 2.0}, {"x": 0.0})
    with Optimizer(
        {"x": [0.0, 1.0, 2.0, 3.0]}, "minimize loss", store=".automl", name="toy"
    ) as one:
        assert one.recommended == advice
    ran("export", "toy", "-o", "out")
    assert (folder / "out" / "weights.txt").read_text() == "0.0"
    assert "by 3 new runs" in (folder / "out" / "README.md").read_text()
    before.save_report("toy.html")
    report = (folder / "toy.html").read_text()
    assert first in report
    assert f"# Trial {new['trial']} of the sweep toy; save as" in report
    assert "Trained again, trial" in report
    wider = ("--config", "toy.yaml", "space.x=[0.0, 1.0, 2.0, 3.0, 4.0]")
    more = run("resume", "toy", "lucky", "--trials", "4", *wider)
    assert first in " ".join(more.stdout.split()), more.output


@pytest.mark.parametrize(
    ("winner", "other", "exceeds", "words"),
    [
        ((1.0, 1.1, 0.9), (2.0, 2.1, 1.9), True, "exceeds the noise"),
        ((1.0, 3.0, 2.0), (2.1, 3.1, 1.1), False, "is within the noise"),
        (
            (2.0, 2.1, 1.9),
            (1.0, 1.1, 0.9),
            False,
            "Trial 5 is better by 1 on average, which exceeds the noise (95% interval 0.77",
        ),
        ((2.0, 2.0), (3.0, 3.0), True, "(2 runs). Runs of a configuration do not differ: the"),
        ((-0.01211,) * 3, (0.1,) * 3, True, "Runs of a configuration do not differ: the"),
        ((), (3.0, 3.0), False, "failed every time"),
    ],
)
def test_the_verdict(winner: Any, other: Any, exceeds: bool, words: str) -> None:
    found = Confirmation(Goal("loss"), (Repeats(4, winner), Repeats(5, other)))
    assert (found.exceeds_noise, words in str(found)) == (exceeds, True), str(found)


def test_what_an_objective_saved_is_exported_and_the_printed_line_trains_it_again(
    folder: Path,
) -> None:
    run("sweep", "toy.yaml", "saves")
    done = ran("export", "toy", "-o", "my out")
    saved = "my out/checkpoints/saved/state.safetensors"
    assert load_file(folder / saved)["w"].tolist() == [0.0, 0.0], done.output
    assert (folder / "my out" / "checkpoints" / "model.txt").read_text() == "0.0"
    assert "weights" not in done.stdout
    line = "automl sweep 'my out/config.yaml' --objective FILE:NAME"
    assert f"trains it again: {line}\n" in done.stdout
    assert line in (folder / "my out" / "config.yaml").read_text()
    words = shlex.split(line.replace("FILE:NAME", "mine.py:saves"))[1:]
    ran(*words, "--dispatcher", "inline")
    assert "at the end" in (folder / "my out" / "README.md").read_text()


def test_a_program_without_weights_is_exported_with_its_line_and_how_to_save_some(
    folder: Path,
) -> None:
    print_it = "import sys; print('loss=' + sys.argv[1])"
    command = ("--", sys.executable, "-c", print_it, "{x}")
    patterns = (r"reports.loss=loss=(\S+)", "--trials", "1")
    ran("sweep", "toy.yaml", *patterns, "--dispatcher", "inline", *command)
    told = ran("export", "toy", "-o", "out").stdout
    assert "The trial has left no weights: save some into {trial_dir}" in told
    line = told.partition("trains it again: automl ")[2].splitlines()[0]
    words = shlex.split(line)
    assert words[:2] == ["sweep", "out/config.yaml"]
    ran(*words[:2], "--dispatcher", "inline", *words[2:])
