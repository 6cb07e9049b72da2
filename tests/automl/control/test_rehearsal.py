"""What cannot act on a function's loop is found before its first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import automl
from automl.control.rehearsal import refused, rehearse, settings_of
from search_spaces import Choice, Space
from workers.context import Context
from workers.protocol import Assignment

STRATEGIES = Choice("parallelism", ["single", "fsdp"], default="single")
RANKS = Choice("ranks", [2], default=2, when={"parallelism": ["fsdp"]})
PARTS = Choice("accumulation", [1, 8], ordered=True, default=1)


def train(trial: Any) -> None:
    trial.prepare(nn.Linear(4, 1), [torch.ones(4, 4)])
    raise AssertionError("nothing is trained")


def in_blocks(trial: Any) -> None:
    model = nn.ModuleDict({"h": nn.ModuleList(nn.Linear(4, 4) for _ in range(2))})
    trial.prepare(model, [torch.ones(4, 4)])


def test_each_setting_of_a_space_is_looked_at_once() -> None:
    assert settings_of(Space(STRATEGIES, RANKS), "ranks") == [
        {"parallelism": "single", "ranks": 1},
        {"parallelism": "fsdp", "ranks": 2},
    ]
    assert settings_of(Space(PARTS), 2)[1] == {"accumulation": 8, "ranks": 2}


@pytest.mark.parametrize(
    ("objective", "space", "sentence"),
    [
        (train, Space(STRATEGIES, RANKS), "parallelism fsdp needs the blocks of the model"),
        (in_blocks, Space(STRATEGIES, RANKS), ""),
        (in_blocks, Space(PARTS), "a batch to divide into 8 parts has as many rows, got 4"),
        (lambda trial: 1 / 0, Space(PARTS), ""),
    ],
)
def test_the_sentence_of_the_first_setting_that_cannot_act(
    objective: Any, space: Space, sentence: str, tmp_path: Path
) -> None:
    context = Context(Assignment("s", 0, 1, {}, None, str(tmp_path)))
    found = rehearse(objective, context, settings_of(space, "ranks")) or ""
    assert found.startswith(sentence)
    assert bool(found) is bool(sentence)


def test_a_sweep_says_it_before_its_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Space(STRATEGIES)  # the sweep adds the ranks
    with pytest.raises(automl.UsageError, match="parallelism fsdp needs the blocks"):
        automl.sweep(train, space, "minimize x", trials=1, workers=2, store=tmp_path)
    assert "running the function up to trial.prepare" in capsys.readouterr().err
    with pytest.raises(automl.UsageError, match="no sweep"):
        automl.load("sweep", tmp_path)
    assert refused(in_blocks, Space(STRATEGIES, RANKS), {}, "ranks") == ""
