"""Words of other libraries get a hint."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.core import Goal
from automl.errors import UsageError
from automl.result import Result
from search_spaces import Space, SpaceError
from search_spaces.errors import WORDS as WORDS_OF_OTHERS
from workers.context import Context
from workers.protocol import Assignment

WORDS = {
    "n_trials": "trials=50",
    "direction": 'goals="minimize loss"',
    "num_samples": "trials=50",
    "timeout": 'budget="10m"',
    "study_name": 'name="mine"',
    "gols": "did you mean 'goals'",
    "constraint": "did you mean 'constraints'",
}


@pytest.mark.parametrize("word", WORDS)
def test_a_keyword_of_another_library(word: str) -> None:
    keywords: dict[str, Any] = {word: 1}
    for call in (partial(automl.sweep, print), automl.Optimizer):
        with pytest.raises(TypeError, match="unexpected keyword argument") as caught:
            call({"x": (0, 1)}, "minimize loss", **keywords)
        assert WORDS[word] in str(caught.value)


def test_an_attribute_of_another_library_or_misspelt(tmp_path: Path) -> None:
    trial = Context(Assignment("s", 0, 1, {"lr": 0.1}, None, str(tmp_path)))
    for owner, name, words in (
        (trial, "suggest_uniform", 'trial.params["lr"]'),
        (trial, "TrialPruned", "returns False"),
        (trial, "param", "; did you mean 'params'"),
        (automl, "create_study", "call `automl"),
        (automl, "swep", "; did you mean 'sweep'"),
        (object.__new__(Result), "best_params", "`result"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'") as caught:
            getattr(owner, name)
        assert words in str(caught.value)
    assert not hasattr(trial, "_param")


def test_a_call_without_goals_says_how_they_are_given() -> None:
    with pytest.raises(UsageError, match="at least one goal, such as 'minimize loss'"):
        automl.sweep(print, {"x": (0, 1)}, trials=10)
    with pytest.raises(UsageError, match="at least one goal, such as 'minimize loss'"):
        automl.Optimizer({"x": (0, 1)})


@pytest.mark.parametrize(
    ("text", "meant"),
    [("minimise loss", "minimize"), ("min loss", "minimize"), ("Max acc", "maximize")],
)
def test_a_misspelt_goal(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"; did you mean '{meant}'"):
        Goal.parse(text)
    with pytest.raises(UsageError, match=r"got 'loss'$"):
        Goal.parse("loss")


def test_an_objective_that_takes_no_trial_is_refused(tmp_path: Path) -> None:
    def objective(x: float, n: int) -> float:
        return x + n

    for function in (objective, lambda: 1.0):
        with pytest.raises(UsageError, match="takes one argument, the trial"):
            automl.sweep(function, {"x": (0, 1)}, "minimize loss", trials=1, store=tmp_path)
    assert not list(tmp_path.iterdir())


def test_keys_of_a_range_of_another_library() -> None:
    with pytest.raises(SpaceError, match="takes no 'min'; `low` is the least value"):
        automl.Optimizer({"lr": {"min": 0.0, "max": 1.0}}, "minimize loss")


def test_the_table_has_no_word_of_ours() -> None:
    keywords = inspect.signature(automl.sweep).parameters
    assert {*keywords, *automl.__all__} & WORDS_OF_OTHERS.keys() == set()
    for kind in (Context, Result, Space):
        assert not [name for name in WORDS_OF_OTHERS if hasattr(kind, name)]
