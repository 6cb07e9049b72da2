"""Configurations of a workload are checked; every error names its line and the correct form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import load
from automl.config.loading import Config
from automl.core.resources import Budget, Resources
from automl.errors import ConfigError
from search_spaces.hardware import Gpu, Hardware, detect

CONFIG = Path(__file__).parents[3] / "configs" / "nmt.yaml"
HARDWARE = Hardware(num_cpus=2, memory_bytes=8 << 30)


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
        ("goals=[]", "goals: at least one goal is needed"),
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
    with pytest.raises(
        ConfigError, match="a name is needed, the file's own is none: 'a name with spaces'"
    ):
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
def test_every_error_is_told_at_once(overrides: list[str], paths: list[str]) -> None:
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
