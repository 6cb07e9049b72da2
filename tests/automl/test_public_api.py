from __future__ import annotations

import inspect
import re

import pytest

import automl
import search_spaces

PUBLIC = {
    "AutomlError",
    "BayesSampler",
    "Metric",
    "Optimizer",
    "Result",
    "TrialFailure",
    "UsageError",
    "load",
    "simulate",
    "sweep",
}


def test_the_public_names_are_these_and_each_can_be_had() -> None:
    assert set(automl.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(automl, name).__module__.startswith(
            ("automl", "search_spaces", "workers")
        ), name


SIGNATURES = {
    "sweep": "objective space goals trials workers seed constraints budget suggester stopper dispatcher resources "
    "store name resume beliefs transfer progress metrics",
    "Optimizer": "space goals constraints suggester seed store name beliefs metrics",
    "load": "name store",
    "simulate": "replay space goals workers seconds seed trials budget constraints suggester stopper max_steps "
    "charge_suggestions faults max_retries store beliefs metrics",
}
SPACES = {"AutomlError", "Choice", "Float", "Int", "Parameter", "Space", "SpaceError", "UsageError"}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_arguments_are_these(name: str) -> None:
    assert list(inspect.signature(getattr(automl, name)).parameters) == SIGNATURES[name].split()


def test_the_names_of_search_spaces_are_these() -> None:
    assert set(search_spaces.__all__) == SPACES


@pytest.mark.parametrize("name", sorted(PUBLIC | {f"search_spaces.{name}" for name in SPACES}))
def test_every_public_name_says_what_it_takes_and_raises(name: str) -> None:
    owner, found = (search_spaces, name.partition(".")[2]) if "." in name else (automl, name)
    public = getattr(owner, found)
    assert inspect.getdoc(public)
    if inspect.isclass(public) and issubclass(public, Exception):
        return
    takes = inspect.signature(public).parameters
    text = (inspect.getdoc(public) or "") + (
        inspect.getdoc(public.__init__) or "" if inspect.isclass(public) else ""
    )
    told = text + "".join(inspect.getdoc(base) or "" for base in getattr(public, "__mro__", ()))
    missing = [argument for argument in takes if not re.search(rf"\b{argument}\b", told)]
    assert missing == []


def test_what_the_contract_promises_of_a_simulation() -> None:
    parameters = inspect.signature(automl.simulate).parameters
    assert list(parameters)[:3] == ["replay", "space", "goals"]
    promised = {
        "workers",
        "seconds",
        "seed",
        "suggester",
        "stopper",
        "max_steps",
        "charge_suggestions",
        "constraints",
    }
    assert promised <= set(parameters)
