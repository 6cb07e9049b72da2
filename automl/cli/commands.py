"""Makes commands of click from the table of actions."""

from __future__ import annotations

import textwrap
from functools import partial
from inspect import cleandoc
from typing import Any

import click

from automl.actions import ACTIONS
from automl.actions.action import Action, resolved

from .common import newest_sweep, opened, say
from .parameters import parameter


def command_of(action: Action) -> click.Command:
    """The command of an action; its code is imported when it is invoked."""
    if action.run.endswith(".command"):
        command: click.Command = resolved(action.run)
        return command
    members = [one for name, one in ACTIONS.items() if name.startswith(f"{action.name} ")]
    name = action.name.rpartition(" ")[2]
    texts: dict[str, Any] = {"help": _help(action), "short_help": action.summary}
    if members:
        commands = {one.name.rpartition(" ")[2]: command_of(one) for one in members}
        return click.Group(name, commands, **texts)
    parameters = [parameter(one) for one in action.arguments if one.on != "http"]
    made: type[click.Command] = resolved(action.parser) if action.parser else click.Command
    return made(name, params=parameters, callback=partial(_invoke, action), **texts)


def _invoke(action: Action, /, **given: Any) -> None:
    """Run an action with the words of the command line, and end with its exit status."""
    if "sweep" in given and given["sweep"] is None:
        given["sweep"] = newest_sweep(given["store"])
        if not given.get("as_json"):
            say(f"sweep {given['sweep']}, the newest of {given['store']}", err=True)
    function = resolved(action.run) if action.run else partial(_perform, action)
    if action.opens or not action.run:
        with opened(given.pop("store"), write=action.opens != "read") as ledger:
            status = function(ledger, **given)
    else:
        status = function(**given)
    if status:
        click.get_current_context().exit(status)


def _perform(action: Action, ledger: Any, as_json: bool = False, **given: Any) -> int | None:
    """Perform the operation of an action with the arguments that were given; print the answer."""
    arguments = {name: value for name, value in given.items() if value not in (None, ())}
    answer = action.operation(of_trial="trial" in arguments).perform(ledger, **arguments)
    if not action.show:
        say(answer["done"])
        return None
    status: int | None = resolved(action.show)(given["sweep"], answer, as_json)
    return status


def _help(action: Action) -> str:
    lines = textwrap.indent("\n".join(action.examples), "  ")
    title = "Examples:" if len(action.examples) > 1 else "Example:"
    return "\n\n".join(filter(None, [cleandoc(action.help), f"\b\n{title}\n{lines}", action.exits]))
