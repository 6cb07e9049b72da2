"""Configurations of a workload are checked; every error names its line and the correct form."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config import load
from automl.config.loading import Config
from automl.core.budget import Budget
from automl.core.resources import Resources
from automl.errors import ConfigError
from search_spaces.hardware import Hardware

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
            "resources.memory: an amount of memory is like 500MB or 1.5GB, got 0",
        ),
        ("budget.gain=0", "budget.gain: more than 0 is needed, got 0"),
        ("budget.time=true", "budget.time: a duration is like 90s, 10m or 1h30m, got true"),
        ("budget=3", "budget: a mapping of names to values is needed, got 3"),
        ("goals=[]", "goals: at least one item is needed"),
        (".".join("abcdefghijklm") + "=1", "a key has at most 12 parts"),
        ("name.x=1", "name.x: name has no parts to set"),
        ("seed=" + "1" * 70_000, "seed: at most 65536 characters"),
        ("stopper=curv", "did you mean 'curve'?"),
    ],
)
def test_what_is_wrong_is_named(override: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(override)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_amounts_are_read_with_their_units_and_folders_made_absolute() -> None:
    spec = read(
        "resources.memory=1.5GB", "budget.time=2h", "budget.gain=0.1", "data.dir=relative"
    ).spec
    assert spec.resources == Resources(cpus=1, memory=1_500_000_000)
    assert spec.budget == Budget(trials=20, time=7200.0, gain=0.1)
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
