"""Makes commands of click from the table of actions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import click

from automl.actions import ACTIONS
from automl.actions.action import Action, Argument, resolved
from automl.core import parse_duration
from automl.errors import StoreError, UsageError

from .common import newest_sweep, opened, say


def command_of(action: Action) -> click.Command:
    """The command of an action; its code is imported when it is invoked."""
    members = [one for name, one in ACTIONS.items() if name.startswith(f"{action.name} ")]
    name = action.name.rpartition(" ")[2]
    texts: dict[str, Any] = {"help": _help(action), "short_help": action.summary}
    if members:
        commands = {one.name.rpartition(" ")[2]: command_of(one) for one in members}
        return click.Group(name, commands, **texts)
    parameters = [_parameter(one) for one in action.arguments if one.on != "mcp"]
    made: type[click.Command] = resolved(action.parser) if action.parser else click.Command
    return made(name, params=parameters, callback=partial(_invoke, action), **texts)


def _invoke(action: Action, /, **given: Any) -> None:
    """Run an action with the words of the command line, and end with its exit status."""
    if given.get("store"):
        from automl.ledger.database import refuse_password

        refuse_password(given["store"])
    if "sweep" in given and given["sweep"] is None:
        given["sweep"] = newest_sweep(given["store"])
        if not given.get("as_json"):
            say(f"sweep {given['sweep']}, the newest of {given['store']}", err=True)
    function = resolved(action.run)
    if action.opens:
        with opened(given.pop("store"), write=action.opens == "write") as ledger:
            status = function(ledger, **given)
    else:
        status = function(**given)
    if status:
        click.get_current_context().exit(status)


def _help(action: Action) -> str:
    lines = textwrap.indent("\n".join(action.examples), "  ")
    title = "Examples:" if len(action.examples) > 1 else "Example:"
    return "\n\n".join(filter(None, [cleandoc(action.help), f"\b\n{title}\n{lines}", action.exits]))


def _parameter(argument: Argument) -> click.Parameter:
    found: dict[str, Any] = {
        "type": _type(argument),
        "metavar": argument.metavar,
        "required": argument.required is True,
    }
    if not found["required"]:  # click takes None for a default too, and then requires nothing
        found["default"] = argument.default
    if argument.type in _PARSERS:
        found["callback"] = partial(_parsed, _PARSERS[argument.type])
    if argument.type == "sweep":
        found["shell_complete"] = _complete_sweep
    if not argument.flag:
        return click.Argument([argument.name], nargs=-1 if argument.many else 1, **found)
    default = argument.default
    known = default is not False and default not in (None, "") and "[default:" not in argument.help
    found |= {"help": argument.help, "multiple": argument.many, "show_default": known}
    if argument.type is bool:
        found |= {"is_flag": True, "type": None}
    return click.Option([*argument.flag.split(), argument.name], **found)


def _type(argument: Argument) -> Any:
    if isinstance(argument.type, tuple):
        return click.Choice(argument.type)
    if argument.type in (int, float) and (argument.min, argument.max) != (None, None):
        ranges: Any = click.IntRange if argument.type is int else click.FloatRange
        found = ranges(argument.min, argument.max)
        found.name = "integer" if argument.type is int else "float"  # no text is "a valid range"
        return found
    if argument.type in ("file", "path"):
        return click.Path(path_type=Path if argument.type == "path" else str)
    return argument.type if isinstance(argument.type, type) else str


def _parsed(
    parse: Callable[[Any], Any], context: click.Context, parameter: click.Parameter, value: Any
) -> Any:
    return None if value is None else parse(value)


def _metrics(words: tuple[str, ...]) -> dict[str, float] | float:
    """The metrics that `METRIC=VALUE` words name, or a single number.

    Raises UsageError if a word is malformed.
    """
    found: dict[str, float] = {}
    if len(words) == 1:
        with suppress(ValueError):
            return float(words[0])
    for text in words:
        name, is_setting, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            is_setting = ""
        if not (name and is_setting):
            raise UsageError(f"a metric is METRIC=NUMBER, such as loss=0.12, got {text!r}")
        if name in found:
            raise UsageError(f"the metric {name} is given twice")
        found[name] = number
    return found


def _with_function(text: str) -> str:
    """FILE:NAME; the function of a FILE alone is `objective`."""
    return text if ":" in text or not text else f"{text}:objective"


def _complete_sweep(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    try:
        with opened(ctx.params.get("store") or ".automl") as ledger:
            return [info.name for info in ledger.sweeps() if info.name.startswith(incomplete)]
    except StoreError:
        return []


_PARSERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    "duration": parse_duration,
    "metrics": _metrics,
    "objective": _with_function,
}
