"""`automl init -- COMMAND`: a space around the numbers of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.config import load
from automl.config.template import WandbSweep, file_of, for_command, read_wandb
from automl.errors import AutomlError, ConfigError
from search_spaces import Float, Int
from workers.command.goal_proposals import printed_metrics


def test_the_numbers_of_a_command_become_parameters(tmp_path: Path) -> None:
    arguments = "python train.py --lr 0.001 --width=64 --layers 3 --dropout 0.1 --epochs 30 "
    arguments += "--seed 1 --optimizer adam model.depth=12 {x} --weight-decay 1e-4"
    text = for_command(arguments.split(), "train.yaml")
    (tmp_path / "train.yaml").write_text(text)
    spec = load(tmp_path / "train.yaml").spec
    assert spec.origin.command == (
        "-- python train.py --lr {lr} --width={width} --layers {layers} --dropout {dropout} "
        "--epochs 30 --seed {seed} --optimizer adam model.depth={model.depth} {{x}} "
        "--weight-decay {weight_decay}"
    )
    with pytest.raises(ConfigError, match=r"write space.epochs: \[50\], or give it to the program"):
        load(tmp_path / "train.yaml", ["fixed.epochs=50"])
    assert spec.max_steps == 30
    assert dict(spec.space.parameters) == {
        "lr": Float("lr", 1e-4, 1e-2, log=True, default=1e-3),
        "width": Int("width", 16, 256, log=True, default=64),
        "layers": Int("layers", 1, 12, default=3),
        "dropout": Float("dropout", 0.0, 0.99, default=0.1),
        "model.depth": Int("model.depth", 3, 48, log=True, default=12),
        "weight_decay": Float("weight_decay", 1e-5, 1e-3, log=True, default=1e-4),
    }
    assert spec.resumable
    assert "This is a guess" in text
    assert "# not tuned: optimizer 'adam'\n" in text
    assert "to tune one, write NAME: [VALUE, ...] here, and {NAME} in the command\n" in text
    assert "not tuned" not in for_command(
        ["train", "--amp", "--lr", "1", "-m", "2", "--verbose"], "t.yaml"
    )
    for script in (["train.py"], ["-m", "train"]):  # behind the options of a launcher
        words = ["torchrun", "--nproc-per-node", "4", *script, "--lr"]
        text = for_command([*words, "1"], "t.yaml")
        assert json.dumps([*words, "{lr}"]) in text
        assert "`ranks: N` here" in text


def test_rates_are_real_and_nothing_is_dropped_in_silence(tmp_path: Path) -> None:
    words = "train --lr 20 --l2 0.0 --warmup 0 --clip 1 --sample-rate 16000 --seed 3"
    metric = printed_metrics(["epoch 1 valid loss 0.5"])[0]
    text = for_command(words.split(), "t.yaml", metric)
    (tmp_path / "t.yaml").write_text(text)
    spec = load(tmp_path / "t.yaml").spec
    assert dict(spec.space.parameters) == {
        "lr": Float("lr", 2.0, 200.0, log=True, default=20.0),
        "clip": Float("clip", 0.1, 10.0, log=True, default=1.0),
        "sample_rate": Int("sample_rate", 4000, 64000, log=True, default=16000),
    }
    assert "# not tuned: l2 0.0, warmup 0\n" in text
    assert "--warmup 0" in spec.origin.command
    assert [str(goal) for goal in spec.goals] == ["minimize valid_loss"]
    assert "Found in: epoch 1 valid loss 0.5" in text


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("python train.py --lr 1", "train.yaml"),
        ("./bin/fit", "fit.yaml"),
        ("python -m some.train lr=1", "some.yaml"),
        ("./.x --lr 1", "sweep.yaml"),
    ],
)
def test_the_file_is_named_after_the_script(line: str, file: str) -> None:
    assert file_of(line.split()) == file


# Sweeps of Weights & Biases become configurations; what cannot be carried over is said.

SWEEP = """
program: train.py
method: bayes
project: vision
metric: {name: val/loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 0.1}
  old_lr: {distribution: log_uniform, min: -4.60517, max: -2.302585}
  batch_size: {values: [16, 32, 64]}
  epochs: {value: 10}
  dropout: {min: 0.0, max: 0.5}
  layers: {min: 1, max: 8}
  width: {distribution: q_uniform, min: 32, max: 256, q: 32}
  optimizer:
    parameters:
      name: {values: [adam, sgd], probabilities: [0.7, 0.3]}
early_terminate: {type: hyperband, min_iter: 3, eta: 2, max_iter: 27}
run_cap: 30
command: ["${env}", "${interpreter}", "${program}", "--fast", "${args}"]
"""
GRID = """
program: run.sh
method: grid
metric: {name: accuracy, goal: maximize, target: 0.95}
parameters:
  seed: {values: [1, 2, 3]}
  "bad name": {values: [1, 2]}
command: ["${program}", "${args_no_hyphens}"]
"""
EXPONENTS = """
method: random
parameters:
  steps: {distribution: q_log_uniform_values, min: 10, max: 1000, q: 1}
"""


def read(folder: Path, content: str) -> WandbSweep:
    path = folder / "theirs.yaml"
    path.write_text(content)
    return read_wandb(path)


def test_a_sweep(tmp_path: Path) -> None:
    found = read(tmp_path, SWEEP)
    assert found.space == {
        "lr": {"low": 1e-5, "high": 0.1, "log": True},
        "old_lr": {"low": 0.01, "high": 0.1, "log": True},
        "batch_size": [16, 32, 64],
        "epochs": [10],
        "dropout": {"low": 0.0, "high": 0.5},
        "layers": {"low": 1, "high": 8, "type": "int"},
        "width": {"low": 32, "high": 256, "type": "int", "step": 32},
        "optimizer.name": ["adam", "sgd"],
    }
    assert found.settings == {
        "goals": ["minimize val/loss"],
        "budget": {"trials": 30},
        "suggester": "bayes",
    }
    assert found.command == "python train.py --fast {params}"
    assert [note.split(" ")[0] for note in found.notes] == ["optimizer.name:", "early_terminate"]


def test_a_grid_with_a_target_and_a_name_that_is_not_possible(tmp_path: Path) -> None:
    found = read(tmp_path, GRID)
    assert found.space == {"seed": [1, 2, 3]}
    assert found.settings["goals"] == ["maximize accuracy"]
    assert found.settings["budget"] == {"trials": 20, "target": 0.95}
    assert found.command == "run.sh seed={seed}"
    assert any(note.startswith("bad name is left out: ") for note in found.notes)
    assert "method: grid has no counterpart: bayes is used" in found.notes


def test_other_distributions(tmp_path: Path) -> None:
    found = read(tmp_path, EXPONENTS)
    assert found.space == {
        "steps": {"low": 10, "high": 1000, "type": "int", "log": True},
    }
    assert found.settings["suggester"] == "random"
    assert found.command == "COMMAND {params}"
    assert "the goal is a guess (minimize loss): the file names no metric" in found.notes


@pytest.mark.parametrize("content", [SWEEP, GRID, EXPONENTS])
def test_what_is_written_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = read(tmp_path, content)
    done = CliRunner().invoke(cli, ["init", "--from", "theirs.yaml", "-o", "mine.yaml"])
    assert done.exit_code == 0, done.output
    for note in found.notes:
        assert f"note: {note}" in done.stderr
    config = load("mine.yaml")
    assert config.spec.origin.command == f"-- {found.command}"
    assert [str(goal) for goal in config.spec.goals] == found.settings["goals"]
    assert set(config.spec.space.parameters) == set(found.space)
    assert config.spec.budget.trials == found.settings["budget"]["trials"]
    assert done.stdout.endswith("automl sweep mine.yaml\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("parameters: !!python/object/apply:os.system ['touch ran']", "tags are not allowed"),
        ("a: &x [1]\nparameters: {lr: {values: *x}}", "aliases are not allowed"),
        ("name: mine\nspace: {}", "is not recognised"),
        ("parameters: {lr: {min: x, max: 1}}", "nothing in"),
        ("parameters: {lr: {distribution: odd, min: 0, max: 1}}", "no range has the distribution"),
        ("parameters: {lr: {min: 2, max: 1}}", "nothing in"),
        ("parameters: {lr: {values: 3}}", "nothing in"),
        ("parameters: {x: {distribution: log_uniform, min: 1, max: 9e9}}", "nothing in"),
        ("parameters: {lr: 3}", "must have keys such as values, got 3"),
    ],
)
def test_what_cannot_be_read_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AutomlError, match=message):
        read(tmp_path, content)
    done = CliRunner().invoke(cli, ["init", "--from", "theirs.yaml", "-o", "mine.yaml"])
    assert done.exit_code == 2
    assert not Path("ran").exists()
    assert not Path("mine.yaml").exists()


def test_an_absent_file_and_two_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        read_wandb(tmp_path / "absent.yaml")
    done = CliRunner().invoke(cli, ["init", "--from", "sweep.yaml", "--", "true"])
    assert done.exit_code == 2
    assert "or a sweep of Weights & Biases with --from" in done.output
