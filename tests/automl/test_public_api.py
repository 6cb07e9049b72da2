from __future__ import annotations

import inspect

import automl

PUBLIC = {
    "AutomlError",
    "BayesSampler",
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
        assert getattr(automl, name).__module__.startswith(("automl", "search_spaces")), name


def test_what_the_contract_promises_of_a_simulation() -> None:
    parameters = inspect.signature(automl.simulate).parameters
    assert list(parameters)[:3] == ["replay", "space", "goals"]
    promised = {"workers", "seconds", "seed", "suggester", "stopper", "max_steps", "charge_suggestions", "constraints"}
    assert promised <= set(parameters)
