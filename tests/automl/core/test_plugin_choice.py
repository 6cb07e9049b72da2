"""The forms in which a user may name a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.core.key_kinds import choose
from automl.errors import UsageError
from automl.stopping import STOPPERS
from automl.stopping.asha import AshaStopper
from automl.stopping.base import Stopper
from automl.stopping.none import NoStopper
from automl.suggesters import SUGGESTERS
from automl.suggesters.random import RandomSuggester
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0))


class PatientStopper(NoStopper):
    """A stopper of the user's, with an option."""

    name = "patient"

    def __init__(self, *args: Any, patience: int = 3, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patience = patience


class OwnSuggester(RandomSuggester):
    """A suggester of the user's."""

    name = "own"


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, 10):
        yield 1.0, {"loss": params["x"] + 1.0 / step}


def test_a_mapping_names_a_plugin_and_its_options() -> None:
    choice = choose(STOPPERS, {"name": "asha", "grace": 5, "factor": 4})
    assert (choice.name, choice.options) == ("asha", {"grace": 5, "factor": 4})
    made = choice.make(STOPPERS, automl.core.parse_goals("minimize loss"), can_pause=False)
    assert isinstance(made, AshaStopper)
    assert made.factor == 4
    assert not made.can_pause


def test_a_class_or_an_object_is_taken_as_it_is() -> None:
    assert choose(STOPPERS, PatientStopper, Stopper).kind(STOPPERS) is PatientStopper
    own = PatientStopper(automl.core.parse_goals("minimize loss"), patience=7)
    assert choose(STOPPERS, own, Stopper).make(STOPPERS, "anything") is own


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"name": "asha", "graze": 5},
            "stopper 'asha' has no option 'graze'; did you mean 'grace'",
        ),
        ({"name": "none", "grace": 5}, "stopper 'none' has no option 'grace'; it has no options"),
        ({"name": "asha", "seed": 5}, "has no option 'seed'"),
        (
            {"name": "asha", "grace": "5"},
            "grace of stopper 'asha' must be a number or none, got '5'",
        ),
        (
            {"name": "asha", "factor": 2.5},
            "factor of stopper 'asha' must be a whole number, got 2.5",
        ),
        ({"name": "asha", "factor": True}, "must be a whole number, got True"),
        ({"name": "ashaa"}, "unknown stopper 'ashaa': did you mean 'asha'"),
        (3, "stopper must be a name, or a mapping of name and options, or a class that inherits"),
        (None, "got None .NoneType."),
        (Stopper, "stopper must be a name"),
        (dict, "stopper must be a name"),
    ],
)
def test_anything_else_is_one_clear_error(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose(STOPPERS, given, Stopper)


def test_options_of_a_suggester_are_checked_too() -> None:
    with pytest.raises(UsageError, match="suggester 'sobol' has no option 'policy'"):
        choose(SUGGESTERS, {"name": "sobol", "policy": 1})


@pytest.mark.parametrize(
    "stopper", [PatientStopper, PatientStopper(automl.core.parse_goals("minimize loss"))]
)
@pytest.mark.parametrize("suggester", [OwnSuggester, {"name": "random"}])
def test_a_sweep_takes_every_form(stopper: Any, suggester: Any) -> None:
    result = automl.simulate(
        replay, SPACE, "minimize loss", trials=4, stopper=stopper, suggester=suggester
    )
    assert [trial.source for trial in result.trials] == [
        "own" if suggester is OwnSuggester else "random"
    ] * 4
