"""The table of actions: what it names exists, and takes what the table says."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from automl.actions import ACTIONS, OPERATIONS
from automl.actions.action import resolved
from automl.cli import COMMANDS

EVERY_VERB = """
    init sweep resume launch status watch trials best report studio dashboard confirm export fit
    compare logs list enqueue pin publish stop pause retry budget scale mark ask report-step tell
    fail delete speed space workloads data doctor ab mcp predict
"""


def test_no_verb_is_lost_and_the_everyday_ones_are_first() -> None:
    assert set(COMMANDS) == set(EVERY_VERB.split())
    first = [name for name in COMMANDS if ACTIONS[name].heading == "Every day"]
    assert len(first) == 12
    assert first == list(COMMANDS[:12])


@pytest.mark.parametrize("name", ACTIONS)
def test_the_functions_of_an_action_exist_and_take_its_arguments(name: str) -> None:
    action = ACTIONS[name]
    members = any(one.startswith(f"{name} ") for one in ACTIONS)
    assert action.run or action.operations or members
    for path in filter(None, (action.run, action.show, action.parser)):
        assert callable(resolved(path))
    if not action.run:
        return
    given = {one.name for one in action.arguments if one.on != "http"} - {"shell"}
    given |= {"program"} if action.parser else set()
    given = given - {"store"} | {"ledger"} if action.opens else given
    takes = signature(resolved(action.run)).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in takes.values()):
        assert {one for one in takes if takes[one].default is Parameter.empty} - given <= {
            "options",
            "recipe",
        }
    else:
        assert given <= set(takes)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_function_of_an_operation_takes_the_fields_of_its_body(name: str) -> None:
    action, operation = OPERATIONS[name]
    function = resolved(operation.effect)
    takes = signature(function).parameters
    fields = {one.name for one in action.fields(operation)}
    if not any(one.kind is Parameter.VAR_KEYWORD for one in takes.values()):
        assert fields <= set(takes)
    assert ("trial" in takes) or not operation.of_trial
    assert "Args:\n" in function.__doc__
    assert all(
        f"    {one.name}: {one.help}" in function.__doc__
        for one in action.arguments
        if one.name in takes and one.help
    )
