"""`automl confirm` and `export`: the best configurations trained again, and taken away."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from automl import Optimizer, load
from automl.cli import cli
from automl.core.goals import Goal
from automl.dispatch.inline import InlineDispatcher
from automl.ledger import Ledger
from automl.report.recommendation import Recommendation
from automl.report.record import Confirmation, Repeats
from automl.workflows import export as exporting

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

def close(trial):
    noise = random.Random(trial.seed).gauss(0, 2)
    return {"loss": trial.params["x"] + noise}

def noisy(trial):
    return {"loss": trial.params["x"] ** 2 + random.Random(trial.seed).gauss(0, 50)}
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
TRANSLATION = """\
name: small
workload: translation
data: {train: 150, valid: 10}
goals: maximize bleu
fixed: {vocabulary_size: 250, width: 16, num_layers: 1, max_epochs: 1, eval_sentences: 6,
  max_length: 40, num_heads: 2, evaluate_updates: 50}
space: {learning_rate: [1e-3, 1e-2]}
budget: {trials: 2}
workers: 1
"""


def automl(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    (tmp_path / "toy.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    # Each sweep of a workload would start a process that estimates its memory.
    monkeypatch.setattr(InlineDispatcher, "estimates", False)
    return tmp_path


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sweep `small` of a translation."""
    folder = tmp_path_factory.mktemp("translated")
    (folder / "small.yaml").write_text(TRANSLATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(InlineDispatcher, "estimates", False)
        assert run("sweep", "small.yaml").exit_code == 0
    return folder / ".automl"


def run(verb: str, name: str, objective: str = "", *more: str) -> Result:
    target = ["--objective", f"mine.py:{objective}"] if objective else []
    return automl(verb, name, "--dispatcher", "inline", *target, *more)


def swept(objective: str) -> None:
    assert run("sweep", "toy.yaml", objective).exit_code == 0


def test_a_clear_lead_is_confirmed_and_told(folder: Path) -> None:
    swept("clear")
    assert "confirmation" not in json.loads(automl("best", "toy", "--json").stdout)
    done = run("confirm", "toy", "clear", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [len(repeat["values"]) for repeat in found["repeats"]] == [3, 3, 3]
    assert found["exceeds_noise"] is True
    assert found["lead"]["low"] > 0
    assert len({value for repeat in found["repeats"] for value in repeat["values"]}) == 9, (
        "each run has its own seed"
    )
    assert (
        json.loads(automl("best", "toy", "--json").stdout)["confirmation"]["exceeds_noise"] is True
    )
    assert "exceeds the noise" in automl("best", "toy").stdout
    assert automl("report", "toy", "-o", "toy.html").exit_code == 0
    assert "exceeds the noise" in (folder / "toy.html").read_text()


def test_what_new_runs_refute_is_recommended_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCK", "1")
    swept("lucky")
    before = load("toy")
    assert before.recommended.params == {"x": 2.0}
    assert before.recommended.confirmed is False
    monkeypatch.delenv("LUCK")
    done = run("confirm", "toy", "lucky", "--json")
    assert done.exit_code == 0, done.output
    (new,) = [one for one in json.loads(done.stdout)["repeats"] if one["mean"] < 0.5]
    advice = before.recommended
    assert advice.params == {"x": 0.0}, "the result from before knows the new runs, too"
    assert (advice.trials, advice.runs, advice.mean) == ((new["trial"],), 3, new["mean"])
    assert advice.interval is not None
    assert -0.1 < advice.interval[0] < advice.mean < advice.interval[1] < 0.1
    first = advice.lines(before.snapshot)[0]
    assert "by 3 new runs of automl confirm" in first
    assert " ".join(automl("best", "toy").stdout.split()).startswith(first)
    best = json.loads(automl("best", "toy", "--json").stdout)
    assert (best["params"], best["recommended"]["params"]) == ({"x": 2.0}, {"x": 0.0})
    with Optimizer(
        {"x": [0.0, 1.0, 2.0, 3.0]}, "minimize loss", store=".automl", name="toy"
    ) as one:
        assert one.recommended == advice
    assert automl("export", "toy", "-o", "out").exit_code == 0
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
    swept("saves")
    done = automl("export", "toy", "-o", "my out")
    assert done.exit_code == 0, done.output
    saved = "my out/checkpoints/saved/state.safetensors"
    assert load_file(folder / saved)["w"].tolist() == [0.0, 0.0], done.output
    assert (folder / "my out" / "checkpoints" / "model.txt").read_text() == "0.0"
    assert "weights" not in done.stdout
    line = "automl sweep 'my out/config.yaml' --objective FILE:NAME"
    assert f"trains it again: {line}\n" in done.stdout
    assert line in (folder / "my out" / "config.yaml").read_text()
    words = shlex.split(line.replace("FILE:NAME", "mine.py:saves"))[1:]
    assert automl(*words, "--dispatcher", "inline").exit_code == 0
    assert "at the end" in (folder / "my out" / "README.md").read_text()


def test_a_program_without_weights_is_exported_with_its_line_and_how_to_save_some(
    folder: Path,
) -> None:
    print_it = "import sys; print('loss=' + sys.argv[1])"
    command = ("--", sys.executable, "-c", print_it, "{x}")
    patterns = (r"reports.loss=loss=(\S+)", "--trials", "1")
    done = automl("sweep", "toy.yaml", *patterns, "--dispatcher", "inline", *command)
    assert done.exit_code == 0, done.output
    told = automl("export", "toy", "-o", "out").stdout
    assert "The trial has left no weights: save some into {trial_dir}" in told
    line = told.partition("trains it again: automl ")[2].splitlines()[0]
    words = shlex.split(line)
    assert words[:2] == ["sweep", "out/config.yaml"]
    again = automl(*words[:2], "--dispatcher", "inline", *words[2:])
    assert again.exit_code == 0, again.output


def test_without_its_checkpoint_the_recommended_trial_gives_way_to_the_best(
    folder: Path, translated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(translated, ".automl")
    with closing(Ledger.open(".automl")) as ledger:
        best = ledger.snapshot("small").best
        assert best is not None
        other = ledger.trials("small")[1 - best.number]
        advice = Recommendation(other.params, 0.0, None, 1, (other.number,))
        monkeypatch.setattr(exporting, "recommended", lambda record: advice)
        (ledger.files("small") / "trials" / str(other.number) / "checkpoints").remove()
    done = automl("export", "small", "-o", "model")
    assert done.exit_code == 0, done.output
    told = f"trial {other.number}, which is recommended, has no checkpoint any more"
    assert told in done.stderr
    assert f"trial {best.number} is in model" in done.stdout
    assert (folder / "model" / "model.safetensors").exists()
    named = automl("export", "small", "-o", "named", "--trial", str(other.number))
    assert (named.exit_code, "has no checkpoint to export" in named.stderr) == (2, True)
