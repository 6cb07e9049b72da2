"""The table of actions: what it names exists, and takes what the table says."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from automl.actions import ACTIONS
from automl.actions.action import resolved
from automl.cli import COMMANDS

EVERY_VERB = """
    init sweep resume list status watch trials best logs report studio stop pause enqueue set
    confirm export ab speed ask tell mcp space workloads doctor launch delete
"""


def test_the_verbs_are_these_and_the_everyday_ones_are_first() -> None:
    assert set(COMMANDS) == set(EVERY_VERB.split())
    first = [name for name in COMMANDS if ACTIONS[name].heading == "Every day"]
    assert first == list(COMMANDS[: len(first)])


@pytest.mark.parametrize("name", ACTIONS)
def test_the_functions_of_an_action_exist_and_take_its_arguments(name: str) -> None:
    action = ACTIONS[name]
    if not action.run:
        assert any(one.startswith(f"{name} ") for one in ACTIONS)
        return
    assert all(callable(resolved(path)) for path in (action.run, action.parser) if path)
    given = {one.name for one in action.arguments if one.on != "mcp"}
    given |= {"program"} if action.parser else set()
    given = given - {"store"} | {"ledger"} if action.opens else given
    takes = signature(resolved(action.run)).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in takes.values()):
        assert {one for one in takes if takes[one].default is Parameter.empty} - given <= {
            "options",
            "given",
        }
    else:
        assert given <= set(takes)
