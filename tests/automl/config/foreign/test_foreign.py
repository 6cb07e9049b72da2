"""Sweeps of other tools become configurations; what cannot be carried over is said."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)

from automl.cli import cli
from automl.config import load
from automl.config.foreign.files import read_foreign
from automl.config.foreign.sweep import ForeignSweep
from automl.errors import UsageError

WANDB = """
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
  noise: {distribution: normal, mu: 0, sigma: 2}
  optimizer:
    parameters:
      name: {values: [adam, sgd], probabilities: [0.7, 0.3]}
early_terminate: {type: hyperband, min_iter: 3, eta: 2, max_iter: 27}
run_cap: 30
command: ["${env}", "${interpreter}", "${program}", "--fast", "${args}"]
"""
WANDB_GRID = """
program: run.sh
method: grid
metric: {name: accuracy, goal: maximize, target: 0.95}
parameters:
  seed: {values: [1, 2, 3]}
  "bad name": {values: [1, 2]}
command: ["${program}", "${args_no_hyphens}"]
"""
WANDB_EXPONENTS = """
method: random
parameters:
  decay: {distribution: inv_log_uniform_values, min: 1e-4, max: 1e-2}
  beta: {distribution: beta, a: 2, b: 5}
  steps: {distribution: q_log_uniform_values, min: 10, max: 1000, q: 1}
"""
NNI = {
    "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
    "batch_size": {"_type": "choice", "_value": [16, 32]},
    "hidden": {"_type": "quniform", "_value": [64, 512, 64]},
    "index": {"_type": "randint", "_value": [0, 10]},
    "momentum": {"_type": "uniform", "_value": [0, 1]},
}
NNI_NESTED = {
    "layer": {
        "_type": "choice",
        "_value": [
            {"_name": "empty"},
            {"_name": "conv", "kernel": {"_type": "choice", "_value": [3, 5]}},
            {"_name": "pool", "size": {"_type": "uniform", "_value": [1.0, 2.0]}},
        ],
    },
    "mean": {"_type": "normal", "_value": [0.0, 1.0]},
}
NNI_EXPERIMENT = """
searchSpace:
  lr: {_type: uniform, _value: [0.001, 0.1]}
trialCommand: python3 mnist.py
trialConcurrency: 2
maxTrialNumber: 40
maxExperimentDuration: 1h
tuner: {name: TPE, classArgs: {optimize_mode: maximize}}
trainingService: {platform: local}
"""
KATIB = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {namespace: kubeflow, name: random}
spec:
  objective:
    type: minimize
    goal: 0.001
    objectiveMetricName: loss
  algorithm: {algorithmName: random}
  parallelTrialCount: 3
  maxTrialCount: 12
  maxFailedTrialCount: 3
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.01", max: "0.05", step: "0.01"}}
    - {name: "--momentum", parameterType: double, feasibleSpace: {min: "0.5", max: "0.9"}}
    - {name: layers, parameterType: int, feasibleSpace: {min: "1", max: "5"}}
    - {name: size, parameterType: discrete, feasibleSpace: {list: ["32", "64"]}}
    - {name: optimizer, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
    - name: decay
      parameterType: double
      feasibleSpace: {min: "1e-6", max: "1e-2", distribution: logUniform}
  trialTemplate:
    primaryContainerName: training-container
    trialParameters:
      - {name: learningRate, description: Learning rate, reference: lr}
      - {name: momentum, description: Momentum, reference: "--momentum"}
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            containers:
              - name: training-container
                image: docker.io/kubeflowkatib/pytorch-mnist-cpu:latest
                command:
                  - "python3"
                  - "/opt/pytorch-mnist/mnist.py"
                  - "--extra={a}"
                  - "--lr=${trialParameters.learningRate}"
                  - "--momentum=${trialParameters.momentum}"
            restartPolicy: Never
"""
KATIB_TPE = """
kind: Experiment
spec:
  objective: {type: maximize, objectiveMetricName: Validation-accuracy}
  algorithm:
    algorithmName: cmaes
    algorithmSettings: [{name: sigma, value: "0.1"}]
  earlyStopping: {algorithmName: medianstop}
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.01", max: "0.03"}}
"""
TUNE_GRID = """
cartpole-ppo:
  env: CartPole-v1
  run: PPO
  num_samples: 4
  stop: {training_iteration: 50}
  config:
    lr: {grid_search: [0.001, 0.0001]}
    gamma: 0.99
    model: {fcnet: {grid_search: [64, 128]}}
"""


def tune_state() -> dict[str, Any]:
    """A state of an experiment: configurations as texts, the space as a pickle in hexadecimal."""
    configs = [{"lr": lr, "layers": n, "act": act} for lr, n, act in TRIALS]
    trials = [
        [json.dumps({"trial_id": str(i), "config": config, "evaluated_params": config}), "{}"]
        for i, config in enumerate(configs)
    ]
    return {
        "trial_data": trials,
        "runner_data": {"_search_alg": {"_type": "CLOUDPICKLE_FALLBACK", "value": "80049500"}},
        "stats": {"start_time": 1.0},
    }


TRIALS = [(0.0001, 2, "relu"), (0.1, 4, "tanh"), (0.01, 3, "relu")]


def read(folder: Path, name: str, content: Any) -> ForeignSweep:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_foreign(path)


def test_a_sweep_of_wandb(tmp_path: Path) -> None:
    found = read(tmp_path, "sweep.yaml", WANDB)
    assert found.space == {
        "lr": {"low": 1e-5, "high": 0.1, "log": True},
        "old_lr": {"low": 0.01, "high": 0.1, "log": True},
        "batch_size": [16, 32, 64],
        "epochs": [10],
        "dropout": {"low": 0.0, "high": 0.5},
        "layers": {"low": 1, "high": 8, "type": "int"},
        "width": {"low": 32, "high": 256, "type": "int", "step": 32},
        "noise": {"low": -6.0, "high": 6.0},
        "optimizer.name": ["adam", "sgd"],
    }
    assert found.goals == ["minimize val/loss"]
    assert found.settings == {
        "suggester": "bayes",
        "budget": {"trials": 30},
        "stopper": {"name": "hyperband", "grace": 3, "factor": 2},
        "max_steps": 27,
    }
    assert found.command == "python train.py --fast {params}"
    assert [note.split(" ")[0] for note in found.notes] == ["noise", "optimizer.name:"]


def test_a_grid_of_wandb_with_a_target_and_a_name_that_is_not_possible(tmp_path: Path) -> None:
    found = read(tmp_path, "grid.yml", WANDB_GRID)
    assert found.space == {"seed": [1, 2, 3]}
    assert found.goals == ["maximize accuracy"]
    assert found.settings == {"budget": {"target": 0.95}}
    assert found.command == "run.sh {key=value}"
    assert any(note.startswith("bad name is left out: ") for note in found.notes)
    assert "method: grid has no counterpart: bayes is used" in found.notes


def test_other_distributions_of_wandb(tmp_path: Path) -> None:
    found = read(tmp_path, "random.yaml", WANDB_EXPONENTS)
    assert found.space == {
        "decay": {"low": 1e-4, "high": 1e-2, "log": True},
        "beta": {"low": 0.0, "high": 1.0},
        "steps": {"low": 10, "high": 1000, "type": "int", "log": True},
    }
    assert found.settings == {"suggester": "random"}
    assert "the goal is a guess (minimize loss): the file names no metric" in found.notes


def test_a_search_space_of_nni(tmp_path: Path) -> None:
    found = read(tmp_path, "search_space.json", NNI)
    assert found.space == {
        "lr": {"low": 0.0001, "high": 0.1, "log": True},
        "batch_size": [16, 32],
        "hidden": {"low": 64, "high": 512, "type": "int", "step": 64},
        "index": {"low": 0, "high": 9, "type": "int"},
        "momentum": {"low": 0.0, "high": 1.0},
    }


def test_nested_choices_of_nni_become_conditions(tmp_path: Path) -> None:
    found = read(tmp_path, "nested.json", NNI_NESTED)
    assert found.space == {
        "layer": ["empty", "conv", "pool"],
        "layer.kernel": {"choices": [3, 5], "when": {"layer": "conv"}},
        "layer.size": {"low": 1.0, "high": 2.0, "when": {"layer": "pool"}},
        "mean": {"low": -3.0, "high": 3.0},
    }


def test_an_experiment_of_nni(tmp_path: Path) -> None:
    found = read(tmp_path, "config.yml", NNI_EXPERIMENT)
    assert found.goals == ["maximize default"]
    assert found.settings == {"budget": {"trials": 40, "time": "1h"}, "workers": 2}
    assert found.command == "python3 mnist.py {params}"
    assert any("trainingService is not carried over" in note for note in found.notes)


def test_an_experiment_of_katib(tmp_path: Path) -> None:
    found = read(tmp_path, "random.yaml", KATIB)
    assert found.space == {
        "lr": {"low": 0.01, "high": 0.05, "step": 0.01},
        "momentum": {"low": 0.5, "high": 0.9},
        "layers": {"low": 1, "high": 5, "type": "int"},
        "size": [32, 64],
        "optimizer": ["sgd", "adam"],
        "decay": {"low": 1e-6, "high": 1e-2, "log": True},
    }
    assert found.goals == ["minimize loss"]
    assert found.settings == {
        "budget": {"trials": 12, "target": 0.001},
        "workers": 3,
        "suggester": "random",
    }
    assert found.command.split()[-3:] == ["--extra={{a}}", "--lr={lr}", "--momentum={momentum}"]


def test_an_experiment_of_katib_says_what_is_lost(tmp_path: Path) -> None:
    found = read(tmp_path, "cmaes.yaml", KATIB_TPE)
    assert found.goals == ["maximize Validation-accuracy"]
    assert found.settings == {"stopper": "median"}
    assert "the algorithm cmaes has no counterpart: bayes is used" in found.notes
    assert "the settings of the algorithm are not carried over" in found.notes


def test_a_grid_of_ray_tune(tmp_path: Path) -> None:
    found = read(tmp_path, "cartpole.yaml", TUNE_GRID)
    assert found.space == {"lr": [0.001, 0.0001], "gamma": [0.99], "model.fcnet": [64, 128]}
    assert found.settings == {"budget": {"trials": 4}, "max_steps": 50}
    assert {note.split(" ")[0] for note in found.notes} >= {"env", "run", "num_samples"}


def test_the_state_of_an_experiment_of_ray_tune(tmp_path: Path) -> None:
    found = read(tmp_path, "experiment_state-1.json", tune_state())
    assert found.space == {
        "lr": {"low": 0.0001, "high": 0.1, "log": True},
        "layers": {"low": 2, "high": 4, "type": "int"},
        "act": ["relu", "tanh"],
    }
    assert any("nothing is unpickled" in note and "3 trials" in note for note in found.notes)


DISTRIBUTIONS = {
    "lr": FloatDistribution(1e-5, 0.1, log=True),
    "dropout": FloatDistribution(0.0, 0.5, step=0.1),
    "layers": IntDistribution(1, 8),
    "width": IntDistribution(32, 512, log=True),
    "optimizer": CategoricalDistribution(["sgd", "adam"]),
}
OF_OPTUNA = {
    "lr": {"low": 1e-5, "high": 0.1, "log": True},
    "dropout": {"low": 0.0, "high": 0.5, "step": 0.1},
    "layers": {"low": 1, "high": 8, "type": "int"},
    "width": {"low": 32, "high": 512, "type": "int", "log": True},
    "optimizer": ["sgd", "adam"],
}


@pytest.mark.parametrize("as_text", [False, True])
def test_distributions_of_optuna(tmp_path: Path, as_text: bool) -> None:
    texts = {name: distribution_to_json(one) for name, one in DISTRIBUTIONS.items()}
    content = texts if as_text else {name: json.loads(text) for name, text in texts.items()}
    assert read(tmp_path, "distributions.json", content).space == OF_OPTUNA


def test_old_distributions_of_optuna(tmp_path: Path) -> None:
    old = {
        "a": {"name": "LogUniformDistribution", "attributes": {"low": 0.1, "high": 1.0}},
        "b": {"name": "DiscreteUniformDistribution", "attributes": {"low": 0, "high": 1, "q": 0.5}},
        "c": {"name": "IntUniformDistribution", "attributes": {"low": 0, "high": 9, "step": 3}},
    }
    assert read(tmp_path, "old.json", old).space == {
        "a": {"low": 0.1, "high": 1.0, "log": True},
        "b": {"low": 0.0, "high": 1.0, "step": 0.5},
        "c": {"low": 0, "high": 9, "type": "int", "step": 3},
    }


def study(storage: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = optuna.create_study(storage=storage, directions=["minimize", "maximize"])
        made.sampler = optuna.samplers.RandomSampler(0)
        made.ask(DISTRIBUTIONS)
        made.ask(DISTRIBUTIONS)


def test_the_journal_and_the_database_of_optuna(tmp_path: Path) -> None:
    journal = optuna.storages.journal.JournalFileBackend(str(tmp_path / "journal.log"))
    study(optuna.storages.JournalStorage(journal))
    study(f"sqlite:///{tmp_path / 'study.db'}")
    for name in ("journal.log", "study.db"):
        found = read_foreign(tmp_path / name)
        assert found.space == OF_OPTUNA, name
        assert found.goals == ["minimize value_0", "maximize value_1"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("wandb.yaml", WANDB),
        ("grid.yaml", WANDB_GRID),
        ("exponents.yaml", WANDB_EXPONENTS),
        ("nni.json", NNI),
        ("nested.json", NNI_NESTED),
        ("experiment.yml", NNI_EXPERIMENT),
        ("katib.yaml", KATIB),
        ("cmaes.yaml", KATIB_TPE),
        ("cartpole.yaml", TUNE_GRID),
        ("state.json", tune_state()),
    ],
)
def test_what_is_written_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    found = read(tmp_path, name, content)
    done = CliRunner().invoke(cli, ["init", "--from", name, "-o", "mine.conf"])
    assert done.exit_code == 0, done.output
    for note in found.notes:
        assert f"note: {note}" in done.stderr
    config = load("mine.conf", command="python train.py {params}")
    assert [str(goal) for goal in config.spec.goals] == found.goals
    assert set(config.spec.space.parameters) == set(found.space)
    budget = found.settings.get("budget", {"trials": 20})
    assert config.spec.budget.trials == budget.get("trials")
    assert f"automl sweep mine.conf -- {found.command or 'COMMAND'}" in done.stdout


class Payload:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("space.pkl", pickle.dumps(Payload()), "is a pickle"),
        ("space.json", pickle.dumps(Payload()), "is a pickle"),
        ("tune.py", "open('ran', 'w')", "is a program, which is not run"),
        (
            "sweep.yaml",
            "parameters: !!python/object/apply:os.system ['touch ran']",
            "tags are not allowed",
        ),
        ("a.yaml", "a: &x [1]\nparameters: {lr: {values: *x}}", "aliases are not allowed"),
        ("b.json", "{", "is not JSON"),
        ("c.yaml", "name: mine\nspace: {}", "is not recognised"),
        ("d.json", "[1, 2]", "is not recognised"),
        ("e.yaml", "parameters: {lr: {min: x, max: 1}}", "lower bound of parameters.lr must be"),
        ("f.yaml", "parameters: {lr: {distribution: odd, min: 0, max: 1}}", "unknown distribution"),
        ("g.json", {"a": {"_type": "choice", "_value": 3}}, "a._value must be a list"),
        ("h.yaml", "parameters: {lr: {min: 2, max: 1}}", "nothing in"),
        ("i.db", b"SQLite format 3\0" + b"x" * 200, "is no storage of Optuna"),
        ("j.log", '{"op_code": 0}\nnot json', "line 2 of the journal"),
        ("k.json", '{"a": ' * 100_000, "is not JSON"),
        ("l.yaml", "parameters: {x: {distribution: log_uniform, min: 1, max: 9e9}}", "exponents"),
    ],
)
def test_what_cannot_be_read_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        read(tmp_path, name, content)
    done = CliRunner().invoke(cli, ["init", "--from", name, "-o", "mine.yaml"])
    assert done.exit_code == 2
    assert not Path("ran").exists()
    assert not Path("mine.yaml").exists()


def test_an_absent_file_and_two_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_foreign(tmp_path / "absent.yaml")
    done = CliRunner().invoke(cli, ["init", "translation", "--from", "sweep.yaml"])
    assert done.exit_code == 2
    assert "or the file of another tool with --from" in done.output
