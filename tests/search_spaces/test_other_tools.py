"""Words of other libraries get a hint."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.result import Result
from search_spaces import Space, SpaceError, other_tools
from workers.context import Context
from workers.protocol import Assignment

WORDS = {
    "n_trials": "trials=50",
    "direction": 'goals="minimize loss"',
    "num_samples": "trials=50",
    "timeout": 'budget="10m"',
    "study_name": 'name="mine"',
}


@pytest.mark.parametrize("word", WORDS)
def test_a_keyword_of_another_library(word: str) -> None:
    calls: tuple[Any, ...] = (automl.sweep, automl.Optimizer)
    for call in calls:
        arguments: tuple[Any, ...] = (print, {"x": (0, 1)}, "minimize loss")
        with pytest.raises(TypeError, match="unexpected keyword argument") as caught:
            call(*arguments[call is not automl.sweep :], **{word: 1})
        assert WORDS[word] in str(caught.value)


def test_an_attribute_of_another_library(tmp_path: Path) -> None:
    trial = Context(Assignment("s", 0, 1, {"lr": 0.1}, None, str(tmp_path)))
    for name, words in (("suggest_float", 'trial.params["lr"]'), ("should_prune", "returns False")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'") as caught:
            getattr(trial, name)
        assert words in str(caught.value)
    with pytest.raises(TypeError, match=r"trial.params\['lr'\]"):
        trial["lr"]
    with pytest.raises(AttributeError, match="call `automl"):
        automl.create_study  # noqa: B018
    with pytest.raises(AttributeError, match="`result"):
        object.__new__(Result).best_params  # noqa: B018


def test_keys_of_a_range_of_another_library() -> None:
    with pytest.raises(SpaceError, match="no key 'min'; `low` is the least value"):
        automl.Optimizer({"lr": {"min": 0.0, "max": 1.0}}, "minimize loss")


def test_no_word_of_ours_is_in_the_tables() -> None:
    assert not other_tools.CALL.keys() & inspect.signature(automl.sweep).parameters.keys()
    for table, kind in (
        (other_tools.TRIAL, Context),
        (other_tools.RESULT, Result),
        (other_tools.SPACE, Space),
    ):
        assert not [name for name in table if hasattr(kind, name)]
    assert not other_tools.MODULE.keys() & set(automl.__all__)
