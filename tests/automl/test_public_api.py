"""The public names can be imported, are documented, and take the arguments of the contract."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from sources import ROOT

import automl
import search_spaces

PUBLIC = [(module, name) for module in (automl, search_spaces) for name in module.__all__]
CALLABLE = [
    (module, name)
    for module, name in PUBLIC
    if not (inspect.isclass(getattr(module, name)) and issubclass(getattr(module, name), Exception))
]
SETTINGS = "goals constraints suggester stopper workers trials budget store seed"
CALLS = [
    (
        automl.sweep,
        2,
        f"{SETTINGS} dispatcher resources name resume prior enqueue progress",
    ),
    (automl.load, 1, "store"),
    (automl.Optimizer, 1, "goals constraints suggester seed store"),
    (automl.Optimizer.ask, 1, ""),
    (automl.Optimizer.tell, 3, ""),
    (automl.Optimizer.fail, 3, ""),
    (automl.Optimizer.add, 3, ""),
    (automl.Optimizer.add, 2, "failure"),
    (automl.simulate, 2, f"{SETTINGS} seconds max_steps charge_suggestions"),
    (search_spaces.Space, 3, "constraints"),
    (search_spaces.Float, 3, "log default affects when"),
    (search_spaces.Int, 3, "log default affects when"),
    (search_spaces.Choice, 2, "ordered default affects when"),
]


def called(value: Any) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=called)
def test_a_public_name_can_be_imported_and_is_in_the_reference(module: Any, name: str) -> None:
    found = getattr(module, name)
    assert found.__module__.startswith(("automl", "search_spaces", "workers"))
    assert inspect.getdoc(found)
    assert name in dir(module)
    reference = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert re.search(rf"^(:::|.*members:).*\b{name}\b", reference, re.MULTILINE)


@pytest.mark.parametrize(("module", "name"), CALLABLE, ids=called)
def test_every_argument_is_documented(module: Any, name: str) -> None:
    public = getattr(module, name)
    documented = [public, *getattr(public, "__mro__", ())]
    if inspect.isclass(public):
        documented.append(public.__init__)
    text = "".join(inspect.getdoc(part) or "" for part in documented)
    arguments = inspect.signature(public).parameters
    assert [name for name in arguments if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(("function", "positional", "keywords"), CALLS, ids=called)
def test_the_calls_of_the_contract_are_accepted(
    function: Any, positional: int, keywords: str
) -> None:
    given = dict.fromkeys(keywords.split())
    assert inspect.signature(function).bind(*range(positional), **given)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = automl.swep  # type: ignore[attr-defined]
