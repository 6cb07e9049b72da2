"""`automl.knobs`: parameters by name, what acts through `prepare`, the ranks of a strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from objectives import make_spec

import automl
from automl import config
from automl.core.spec import follow_strategy
from automl.errors import ConfigError, SpaceError, UsageError
from search_spaces import Choice, Float, Space

RATE = Float("lr", 0.1, 1.0)


def test_knobs_are_parameters_by_name_with_the_values_that_are_wanted() -> None:
    found = automl.knobs("accumulation", "learning_rate", parallelism=["single", "hsdp"])
    assert [p.name for p in found] == ["accumulation", "learning_rate", "parallelism"]
    assert found[2].choices == ("single", "hsdp")
    assert automl.knobs(accumulation=[1, 8])[0].choices == (1, 8)
    (strategy,) = automl.knobs("parallelism")
    assert strategy.choices == ("single", "ddp", "fsdp")


def test_one_value_that_is_asked_for_is_kept_and_threads_need_no_slot() -> None:
    assert automl.knobs(memory_format=["channels_last"])[0].choices == ("channels_last",)
    assert automl.knobs(threads=[1])[0].choices == (1,)
    assert automl.knobs(threads=[1, 10**6])[0].choices == (1,)
    with pytest.raises(UsageError, match=r"precision is one of fp32, .*, got 'bfp16'"):
        automl.knobs(precision=["fp32", "bfp16"])
    with pytest.raises(UsageError, match="can run none of"):
        automl.knobs(threads=[10**6])


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no knob 'precison': .*precision"):
        automl.knobs("precison")
    with pytest.raises(SpaceError, match="activation_checkpointing"):  # it acts only with that one
        Space(*automl.knobs("checkpoint_every"))


def test_ranks_follow_from_the_strategy_within_the_slots() -> None:
    spec = make_spec(space=Space(RATE, *automl.knobs("parallelism")))
    found, line = follow_strategy(spec, 5)
    assert (found.ranks, line) == ("ranks", "")
    ranks = found.space.parameters["ranks"]
    assert isinstance(ranks, Choice)
    assert (ranks.choices, ranks.when) == ((2, 4), {"parallelism": ("ddp", "fsdp")})
    alone, line = follow_strategy(spec, 1)
    assert (alone.ranks, alone.space.parameters["parallelism"].choices) == (1, ("single",))
    assert line == "parallelism: ddp, fsdp left out, they need 2 slots and there is 1"
    spread = make_spec(space=Space(RATE, Choice("parallelism", ["ddp", "fsdp"])))
    with pytest.raises(UsageError, match="parallelism ddp needs 2 slots, there is 1"):
        follow_strategy(spread, 1)


CONFIG = """
goals: minimize loss
space: {lr: {low: 0.1, high: 1.0}, compile: {choices: ["yes", "no"]}, NAME: auto}
budget: {trials: 3}
workers: 2
"""


def test_a_knob_has_the_same_name_in_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(CONFIG.replace("NAME", "parallelism"))
    spec = config.load(file, objective=True).spec
    assert list(spec.space.parameters) == ["lr", "compile", "parallelism", "ranks"]
    assert spec.ranks == "ranks"
    assert spec.space.parameters["compile"].choices == ("yes", "no"), "the user's own"
    file.write_text(CONFIG.replace("NAME", "accumulations"))
    with pytest.raises(ConfigError, match="unknown knob"):
        config.load(file, objective=True)
