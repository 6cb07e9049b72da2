"""A whole file, with overrides, made into the description of a sweep."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import Config, Override, load
from automl.config.loading import limit_of, plain_changes, read_changes
from automl.config.source import WrittenConfig
from automl.core import Budget, Constraint, Goal, PluginChoice, Resources
from automl.core.spec import KEYS, SweepSpec
from automl.errors import ConfigError, UsageError
from automl.suggesters.domain import Limit
from scripts import docs_hook
from search_spaces import Choice, Float, Int, Space
from search_spaces.hardware import Gpu, Hardware, detect

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
    assert (
        str(spec.workers),
        spec.seed,
        str(spec.suggester),
        str(spec.stopper),
        spec.workload,
    ) == (
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
        ("goals: minimize loss\n", "", "goals: a sweep needs at least one goal"),
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
    assert config.spec.knowledge.prior["model.lr"]["at"] == [0.5]
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
    assert spec.stopper == PluginChoice("asha", {"grace": 5, "factor": 4})
    assert (spec.max_steps, spec.max_retries, spec.resumable) == (100, 0, True)
    assert SweepSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    spec = loaded(tmp_path, TEXT, "stopper={name: median, trials: 3}", "suggester={name: tpe}").spec
    assert spec.stopper == PluginChoice("median", {"trials": 3})
    assert spec.suggester == PluginChoice("tpe")


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


# Configurations of a workload.

CONFIG = Path(__file__).parents[3] / "configs" / "nmt.yaml"


def read(*overrides: str, path: Path = CONFIG) -> Config:
    return load(path, overrides, hardware=HARDWARE, objective=False)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "fixed.evaluate_sekonds=3",
            "unknown option of workload translation; did you mean 'evaluate_seconds'?",
        ),
        ("fixed.width=64", "fixed.width: width is also under space; take it out of one of them"),
        ("fixed.precision=fp31", "fixed.precision: must be one of fp32, "),
        ("data.name=multi30k", "nmt.yaml:10: data: data set 'multi30k' needs data.dir"),
        ("data.name=nothing", "got 'nothing': known: builtin, multi30k, parallel"),
        (
            "resources.memory=no",
            "resources.memory: an amount of memory is like 500MB or 1.5GB, got 'no'",
        ),
        (
            "resources.memory=0",
            "resources.memory: a whole number of at least 1 is needed, got 0",
        ),
        ("budget=3", "budget: a mapping of names to values is needed, got 3"),
        ("goals=[]", "goals: a sweep needs at least one goal"),
        ("name.x=1", "name.x: name has no parts to set"),
        ("stopper=curv", "did you mean 'curve'?"),
    ],
)
def test_what_is_wrong_is_named(override: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(override)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_amounts_are_read_with_their_units_and_folders_made_absolute() -> None:
    spec = read("resources.memory=1.5GB", "budget.time=2h", "data.dir=relative").spec
    assert spec.resources == Resources(cpus=1, memory=1_500_000_000)
    assert spec.budget == Budget(trials=20, time=7200.0)
    assert spec.data == {"name": "builtin", "dir": str(Path.cwd() / "relative")}


def test_what_a_configuration_leaves_out_is_the_workloads(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("workload: translation\n")
    spec = read(path=path).spec
    assert (spec.name, spec.workload, [goal.metric for goal in spec.goals]) == (
        "short",
        "translation",
        ["bleu"],
    )
    assert "learning_rate" in spec.space.parameters
    path.write_text("workload: translatoin\n? [a]\n: 1\n")
    with pytest.raises(ConfigError) as caught:
        read(path=path)
    assert "did you mean 'translation'?" in str(caught.value)
    assert "a key must be a plain name" in str(caught.value)


def test_a_file_whose_own_name_is_none_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "a name with spaces.yaml"
    path.write_text("workload: translation\n")
    with pytest.raises(ConfigError, match=r"name: a name has 1 to 64 .*'a name with spaces'"):
        read(path=path)


@pytest.mark.parametrize(
    ("overrides", "paths"),
    [
        (
            [
                *("goals=minimise loss", "space.learning_rate.low=1", "space.dropout.hihg=1"),
                *("fixed.width=64", "budget.trails=1", "suggester=bays", "sead=1", "data.name=no"),
            ],
            [
                *("goals", "space.learning_rate", "space.dropout.hihg", "fixed.width"),
                *("budget.trails", "suggester", "sead", "data"),
            ],
        ),
        (["space.learning_rate.low=1", "space.width=[a]"], ["space.learning_rate", "space.width"]),
        (["resources.gpus=1", "seed=x", "space.width=[a]"], ["seed", "space.width"]),
        (["resources.gpus=-1", "space.width=[a]"], ["resources.gpus", "space.width"]),
    ],
)
def test_every_error_of_a_workload_is_told_at_once(overrides: list[str], paths: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*overrides)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith(f"{len(paths)} errors in ")
    assert {line.split(": ")[1] for line in lines} == set(paths)


@pytest.mark.parametrize("path", sorted(CONFIG.parent.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_right_configuration_is_the_same_whoever_looks_at_the_machine(path: Path) -> None:
    assert load(path) == load(path, hardware=detect())


def test_a_slot_has_a_gpu_by_default_and_it_is_said() -> None:
    gpu = Gpu("H100", 80 * 10**9, (9, 0), bf16=True)
    machine = replace(HARDWARE, gpus=(gpu,) * 2, backends=("gloo", "nccl"))
    found = load(CONFIG, ["workers=2"], hardware=machine)
    assert found.spec.resources.gpus == 1.0
    assert found.notes == (
        "each worker has a GPU; set the resources to `gpus: 0` for trials on the CPU",
    )
    assert load(CONFIG, ["workers=4"], hardware=machine).spec.resources.gpus == 0.5
    on_cpu = load(CONFIG, ["resources.gpus=0"], hardware=machine)
    assert (on_cpu.spec.resources.gpus, on_cpu.notes) == (0.0, ())
    assert load(CONFIG, hardware=HARDWARE).spec.resources.gpus == 0.0


# Limits and settings as people type them.

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("width", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam", "rmsprop"]),
    Choice("blocks", [1, 2, 4, 8], ordered=True),
)
LIMITS = {
    name: limit_of(SPACE, name, value)
    for name, value in {
        "lr": [1e-4, 1e-3],
        "optimizer": ["adam", "rmsprop"],
        "width": 128.0,
    }.items()
}


def test_limits_are_values_ranges_and_choices() -> None:
    assert LIMITS["lr"] == Limit(low=1e-4, high=1e-3)
    assert LIMITS["optimizer"] == Limit(choices=("adam", "rmsprop"))
    assert LIMITS["width"] == Limit(low=128, high=128)
    assert [str(limit) for limit in LIMITS.values()] == ["0.0001 to 0.001", "adam, rmsprop", "128"]
    assert {name: Limit.from_dict(limit.to_dict()) for name, limit in LIMITS.items()} == LIMITS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 2), ("lr", [1e-3, 1e-4]), ("lr", [1e-4, 1e-3, 1e-2]), ("lr", "fast"),
        ("optimizer", "adamw"), ("optimizer", ["adam", "adamw"]), ("rate", 1), ("width", 1.5),
    ],
)  # fmt: skip
def test_a_limit_that_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(UsageError):
        limit_of(SPACE, name, value)


def test_changes_are_of_the_budget_the_workers_and_the_space() -> None:
    words = ["budget.trials=9", "budget.time=2h", "budget.target=null", "workers=4", "space.a.b=1"]
    found = read_changes(plain_changes(words))
    assert found.budget == {"trials": 9, "time": 7200.0, "target": None}
    assert (str(found.workers), found.space) == ("4", {"a.b": 1})
    ranged = read_changes(plain_changes(["workers={min: 2, max: 8}", "space.x=[1e-3, 1]"]))
    assert (str(ranged.workers), ranged.space) == ("2 to 8", {"x": [1e-3, 1]})
    for wrong in ({"seed": 1}, {"budget.hours": 1}, {"space.": 1}, {"workers": "many"}):
        with pytest.raises(UsageError):
            read_changes(wrong)


ODD = Space(
    Choice("model.widths", [None, [64, 32], [64]]),
    Float("model.rate", 0.0, 1.0, step=0.25),
    Choice("words", ["none", "a"]),
)


def test_none_lists_and_dotted_names_are_typed_as_in_yaml() -> None:
    for text in ("[64,32]", "[64, 32]", "(64, 32)", "null", "None"):
        expected = None if text[0] in "nN" else (64, 32)
        typed = {"model.widths": text, "words": "none"}
        found = ODD.accept(typed, text=True)
        assert (found["model.widths"], found["words"]) == (expected, "none")
    assert limit_of(ODD, "model.widths", [64, 32]) == Limit(choices=((64, 32),))
    limit = limit_of(ODD, "model.widths", [None, [64]])
    assert (limit, str(limit)) == (Limit(choices=(None, (64,))), "None, [64]")
    assert Limit.from_dict(json.loads(json.dumps(limit.to_dict()))) == limit
    with pytest.raises(UsageError, match=r"'0\.3'; the nearest value is 0\.25"):
        ODD.accept({"model.rate": "0.3"}, text=True)


# The reference of the configuration has every key, and its examples are accepted.

FIELDS = docs_hook.all_keys()


@pytest.mark.parametrize("name", FIELDS)
def test_the_example_is_accepted(name: str) -> None:
    example = FIELDS[name].example
    section, _, key = name.partition(".")
    if section == "space" and key:
        document = f"space: {{lr: {{{example}}}}}"
    elif section == "workers" and key:
        document = f"workers: {{{'min: 2, max: 64'}}}"
        assert example in document
    else:
        document = f"{section}: {{{example}}}" if key else example
    source = WrittenConfig.of_bytes(document.encode(), "example.yaml")
    source.settings()
    assert source.errors == []
    assert set(source.data) == {section}
    assert example.startswith(f"{key or section}:")


def test_types_and_defaults_are_those_of_the_keys() -> None:
    shown = {name: (key.kind.words, docs_hook.default_of(key)) for name, key in FIELDS.items()}
    assert shown["workers"][0].endswith("of at least 1 and at most 10,000 or mapping")
    assert shown["workers.min"][1] == "required"
    assert shown["max_retries"] == ("whole number of at least 0", "`2`")
    assert shown["goals"][0] == "goal, or a list of these"
    assert shown["space.affects"][0] == "`quality`, `speed`, `memory`, or a list of these"
    assert shown["resources.memory"][0] == "size"


def test_the_reference_has_a_heading_for_each_key_and_the_page_a_place() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert "<!-- keys -->" in page.read_text(encoding="utf-8")
    text = docs_hook.settings()
    assert all(f"### `{name}`\n" in text for name in KEYS)
    assert "| `worker_time` | duration |" in text
