"""A whole file, with overrides, made into the description of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automl.config import Config, Override, load
from automl.core.goals import Constraint, Goal
from automl.core.resources import Budget, Resources
from automl.core.spec import SweepSpec
from automl.errors import ConfigError
from search_spaces import Choice, Float, Int
from search_spaces.hardware import Hardware

HARDWARE = Hardware(2, 8 << 30)
TEXT = """\
name: toy
space:
  lr: {low: 1e-5, high: 1e-1, log: true, affects: quality}
  batch_size: {low: 8, high: 512, log: true, default: 64}
  optimizer: [sgd, adam]
  momentum: {low: 0.0, high: 0.99, when: {optimizer: sgd}}
goals: minimize loss
constraints: [peak_memory_bytes <= 8e9, batch_size * lr <= 10]
budget: {trials: 1e1, time: 10m, target: 0.5}
resources: {cpus: 1, gpus: 0.5}
workers: 2
stopper: none
seed: 3
"""


def loaded(tmp_path: Path, text: str, *overrides: str | Override, objective: bool = True) -> Config:
    path = tmp_path / "toy.yaml"
    path.write_text(text)
    return load(path, overrides, hardware=HARDWARE, objective=objective)


def message(tmp_path: Path, text: str, *overrides: str | Override, objective: bool = True) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, *overrides, objective=objective)
    assert [path.name for path in tmp_path.iterdir()] == ["toy.yaml"]
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_a_file_becomes_a_specification(tmp_path: Path) -> None:
    spec = loaded(tmp_path, TEXT).spec
    assert spec.name == "toy"
    assert list(spec.space.parameters.values()) == [
        Float("lr", 1e-5, 1e-1, log=True, affects={"quality"}),
        Int("batch_size", 8, 512, log=True, default=64),
        Choice("optimizer", ["sgd", "adam"]),
        Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
    ]
    assert [str(c) for c in spec.space.constraints] == ["batch_size * lr <= 10"]
    assert spec.goals == (Goal("loss"),)
    assert spec.constraints == (Constraint("peak_memory_bytes", 8e9),)
    assert spec.budget == Budget(trials=10, time=600.0, target=0.5)
    assert spec.resources == Resources(1, 0.5)
    assert (str(spec.workers), spec.seed, spec.suggester, spec.stopper, spec.workload) == (
        "2",
        3,
        "bayes",
        "none",
        None,
    )


def test_overrides_win_the_last_one_most(tmp_path: Path) -> None:
    overrides = [
        "budget.trials=4",
        "space.lr.low=1e-4",
        "data.name=multi30k",
        "goals=maximize bleu within 30s",
    ]
    overrides += [
        "budget.trials=5",
        "data.dir=somewhere",
        "space.optimizer=[adam, 'sgd']",
        "data.note=a=b: [c",
    ]
    spec = loaded(tmp_path, TEXT, *overrides).spec
    assert spec.budget.trials == 5
    assert repr(spec.space.parameters["lr"]).startswith("Float('lr', 0.0001, 0.1, log=True")
    assert spec.data == {
        "name": "multi30k",
        "dir": str(Path.cwd() / "somewhere"),
        "note": "a=b: [c",
    }
    assert spec.goals == (Goal("bleu", True, 30.0),)
    assert spec.space.parameters["optimizer"] == Choice("optimizer", ["adam", "sgd"])


def test_the_name_is_the_files_where_none_is_written(tmp_path: Path) -> None:
    assert loaded(tmp_path, TEXT.replace("name: toy\n", "")).spec.name == "toy"


def test_an_option_of_the_command_line_is_named_in_its_errors(tmp_path: Path) -> None:
    assert message(tmp_path, TEXT, Override("budget.trials", "0", "--trials")) == (
        "--trials: budget.trials: a whole number of at least 1 is needed, got 0"
    )


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("trials", "override 'trials': an override is KEY=VALUE"),
        ("=3", "an override is KEY=VALUE"),
        ("a..b=3", "an override is KEY=VALUE"),
        (
            "budgett.trials=3",
            "override 'budgett.trials=3': budgett: unknown key; did you mean 'budget'?",
        ),
        (
            "budget.trails=3",
            "override 'budget.trails=3': budget.trails: unknown key; did you mean 'trials'?",
        ),
        ("budget.trials=x", "budget.trials: a whole number of at least 1 is needed, got 'x'"),
        ("budget.trials=010", "budget.trials: a leading zero"),
        ("seed.x=3", "seed.x: seed has no parts to set"),
        ("space.lr.low=.nan", "space.lr.low: numbers must be finite"),
        ("space.lr.low=1", "space.lr: low of 'lr' must not be above high"),
        ("space.optimizer=[sgd, .inf]", "space.optimizer[1]: numbers must be finite"),
        ("space.optimizer=[sgd", "space.optimizer: not YAML"),
        ("space.optimizer=[*x]", "space.optimizer[0]: aliases are not allowed"),
        ("name=a/b", "name: a name has 1 to 64 of"),
        ("name='nmt\\n'", "name: a name has 1 to 64 of"),
        ("budget=[1,2]", "budget: a mapping of names to values is needed"),
    ],
)
def test_a_wrong_override_is_named(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in message(tmp_path, TEXT, override)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: toy", "name: '../toy'", "toy.yaml:1: name: a name has 1 to 64 of"),
        ("name: toy", "nmae: toy", "toy.yaml:1: nmae: unknown key; did you mean 'name'?"),
        ("minimize loss", "minimise loss", "toy.yaml:7: goals: a goal is 'minimize METRIC'"),
        ("minimize loss", "[minimize loss, 3]", "toy.yaml:7: goals[1]: a goal is"),
        ("minimize loss", "[minimize loss, maximize loss]", "each goal needs a metric of its own"),
        (
            "minimize loss",
            "minimize loss within 1:30",
            "a duration is like 90s, 10m or 1h30m, got '1:30'",
        ),
        ("goals: minimize loss\n", "", "goals: at least one goal is needed"),
        (
            "time: 10m",
            "time: no",
            "toy.yaml:9: budget.time: a duration is like 90s, 10m or 1h30m, got 'no'",
        ),
        ("time: 10m", "time: -3", "budget.time: a duration is like"),
        ("target: 0.5", "target: .nan", "budget.target: numbers must be finite"),
        ("stopper: none", "stopper: no", "stopper: unknown stopper 'no'"),
        ("workers: 2", "workers: 0", "workers: a whole number of at least 1 is needed, got 0"),
        (
            "workers: 2",
            "workers: two",
            "workers: a whole number of at least 1 is needed, got 't",
        ),
        ("gpus: 0.5", "gpus: -1", "resources.gpus: a number of at least 0 is needed, got -1"),
        ("gpus: 0.5", "gpus: 1.5", "resources.gpus: gpus of a slot are a whole number, or a share"),
        ("seed: 3", "seed: 1.5", "seed: a whole number of at least 0 is needed, got 1.5"),
        (
            "seed: 3",
            "suggester: baies",
            "suggester: unknown suggester 'baies': did you mean 'bayes'?",
        ),
        ("8e9", "8QB", "toy.yaml:8: constraints[0]: a constraint is 'METRIC <= NUMBER'"),
        ("high: 1e-1", "high: 1e-9", "toy.yaml:3: space.lr: low of 'lr' must not be above high"),
        (
            "high: 512",
            "hihg: 512",
            "toy.yaml:4: space.batch_size.hihg: unknown key; did you mean 'high'?",
        ),
        (
            "{optimizer: sgd}",
            "{optimizer: sdg}",
            "space.momentum: when gives optimizer a value that it never has",
        ),
        ("low: 0.0, high: 0.99, ", "", "space.momentum: momentum needs low and high, or choices"),
        ("[sgd, adam]", "[sgd, sgd]", "choices of 'optimizer' must differ"),
        ("  optimizer", "  precison: auto\n  optimizer", "space.precison: unknown knob"),
        ("name: toy", "name: toy\nworkload: x", "with --objective a configuration has no workload"),
    ],
)
def test_one_mistake_gets_one_message(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in TEXT
    found = message(tmp_path, TEXT.replace(old, new))
    assert expected in found
    assert len(found.splitlines()) == 1


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    text = (
        TEXT.replace("high: 1e-1", "high: 1e-9")
        .replace("minimize", "minimise")
        .replace("trials: 1e1", "trails: 1")
    )
    lines = message(tmp_path, text, "seed=x", "stopper=asa").splitlines()
    assert lines[0].startswith("5 errors in ")
    assert [line.split(": ")[1] for line in lines[1:]] == [
        "space.lr",
        "goals",
        "budget.trails",
        "seed",
        "stopper",
    ]


def test_without_workload_and_objective_the_message_says_what_is_needed(tmp_path: Path) -> None:
    assert "or a function of your own named with --objective FILE:NAME" in message(
        tmp_path, TEXT, objective=False
    )
    found = message(tmp_path, TEXT + "workload: translatoin\n", objective=False)
    assert "toy.yaml:14: workload: unknown workload 'translatoin'" in found


DOTTED = """\
space:
  model.lr: {low: 0.0, high: 1.0, step: 0.25}
  model.opt: [sgd, null, [adam, 0.9]]
  model.beta: {low: 0.8, high: 1.0, when: {model.opt: [[adam, 0.9]]}}
goals: minimize val.loss
constraints: [model.lr <= 0.5, val.loss <= 3]
prior: {model.lr: 0.25}
"""


def test_dotted_names_steps_null_and_lists(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        DOTTED,
        "space.model.lr.high=0.9",
        "space.model.beta.when.model.opt=null",
        "space.net.depth=[1, 2]",
        "space.net.width.low=16",
        "space.net.width.high=70",
        "space.net.width.step=16",
        "prior.model.lr=0.5",
    )
    assert list(config.spec.space.parameters.values()) == [
        Float("model.lr", 0.0, 0.75, step=0.25),
        Choice("model.opt", ["sgd", None, ("adam", 0.9)]),
        Float("model.beta", 0.8, 1.0, when={"model.opt": [None]}),
        Choice("net.depth", [1, 2], ordered=True),
        Int("net.width", 16, 64, step=16),
    ]
    assert [str(c) for c in config.spec.space.constraints] == ["model.lr <= 0.5"]
    assert [c.metric for c in config.spec.constraints] == ["val.loss"]
    assert config.spec.prior["model.lr"]["at"] == [0.5]
    restored = SweepSpec.from_dict(json.loads(json.dumps(config.spec.to_dict())))
    assert restored.space == config.spec.space


def test_a_default_of_null_is_a_default(tmp_path: Path) -> None:
    text = "space: {w: {choices: [1, null], default: null}}\ngoals: minimize loss\n"
    assert loaded(tmp_path, text).spec.space.default() == {"w": None}


def test_ranks_are_a_number_or_a_parameter(tmp_path: Path) -> None:
    text = "space: {lr: [0.1, 0.2], num_gpus: [1, 2]}\ngoals: minimize loss\n"
    assert loaded(tmp_path, text).spec.ranks == 1
    assert loaded(tmp_path, text + "ranks: 2\n").spec.ranks == 2
    assert loaded(tmp_path, text + "ranks: num_gpus\n").spec.ranks == "num_gpus"
    with pytest.raises(ConfigError, match=r":3: ranks: .*parameter 'lr' is the number of ranks"):
        loaded(tmp_path, text + "ranks: lr\n")
    with pytest.raises(ConfigError, match=r":3: ranks: a whole number of at least 1 is"):
        loaded(tmp_path, text + "ranks: 0\n")


def test_options_of_plugins_and_settings_of_stoppers(tmp_path: Path) -> None:
    text = TEXT.replace("stopper: none", "stopper: {name: asha, grace: 5, factor: 4}")
    spec = loaded(tmp_path, text + "max_steps: 100\nmax_retries: 0\nresumable: true\n").spec
    assert (spec.stopper, spec.stopper_options) == ("asha", {"grace": 5, "factor": 4})
    assert (spec.max_steps, spec.max_retries, spec.resumable) == (100, 0, True)
    assert SweepSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    spec = loaded(tmp_path, TEXT, "stopper={name: median, trials: 3}", "suggester={name: tpe}").spec
    assert (spec.stopper, spec.stopper_options) == ("median", {"trials": 3})
    assert (spec.suggester, spec.suggester_options) == ("tpe", {})


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("{name: asha, graze: 5}", "stopper 'asha' has no option 'graze'; did you mean 'grace'"),
        ("{name: asha, grace: soon}", "grace of stopper 'asha' must be a number or none"),
        ("{name: asha, factor: 1}", "factor of stopper 'asha' must be at least 2, got 1"),
        ("{grace: 5}", "a name, or a mapping of name and options, is needed"),
        ("3", "a name, or a mapping of name and options, is needed, got 3"),
    ],
)
def test_a_wrong_option_is_one_error_with_its_line(
    tmp_path: Path, option: str, expected: str
) -> None:
    found = message(tmp_path, TEXT.replace("stopper: none", f"stopper: {option}"))
    assert expected in found
    assert "toy.yaml:12" in found, found
    assert "1 problem" in found or found.count("toy.yaml:") == 1, found


def test_workers_may_be_a_range(tmp_path: Path) -> None:
    spec = loaded(tmp_path, TEXT, "workers={min: 2, max: 64}").spec
    assert str(spec.workers) == "2 to 64"
    for wrong, words in [
        ("{min: 2}", "workers: a mapping of min and max is needed"),
        ("{min: 2, maxi: 3}", "did you mean 'max'"),
        ("{min: 3, max: 2}", "min of workers must not exceed max, got 3 and 2"),
        ("{min: 0, max: 2}", "a whole number of at least 1 is needed, got 0"),
    ]:
        assert words in message(tmp_path, TEXT, f"workers={wrong}")
