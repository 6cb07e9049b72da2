"""Makes parameters of click from the arguments of actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from automl.actions.action import Argument
from automl.core import parse_duration
from automl.errors import StoreError, UsageError

F = TypeVar("F", bound=Callable[..., Any])


def parameter(argument: Argument) -> click.Parameter:
    """The parameter of an argument."""
    declared, attributes = _spelling(argument)
    return (click.Option if argument.flag else click.Argument)(declared, **attributes)


def options(*arguments: Argument) -> Callable[[F], F]:
    """A decorator that adds arguments to a command which is written out."""

    def add(command: F) -> F:
        for argument in reversed(arguments):
            declared, attributes = _spelling(argument)
            kind: Any = click.option if argument.flag else click.argument
            command = kind(*declared, **attributes)(command)
        return command

    return add


def _spelling(argument: Argument) -> tuple[list[str], dict[str, Any]]:
    """The names and the attributes of a parameter of click."""
    found: dict[str, Any] = {
        "type": _type(argument),
        "metavar": argument.metavar,
        "required": argument.required and argument.type != "metrics",  # a trial may end without
        "default": argument.default,
    }
    if argument.type in _PARSERS:
        found["callback"] = partial(_parsed, _PARSERS[argument.type])
    if argument.type == "sweep":
        found["shell_complete"] = _complete_sweep
    if not argument.flag:
        return [argument.name], {**found, "nargs": -1 if argument.many else 1}
    default = argument.default
    known = default is not False and default not in (None, "") and "[default:" not in argument.help
    found |= {"help": argument.help, "multiple": argument.many, "show_default": known}
    if argument.type is bool:
        found |= {"is_flag": True, "type": None}
    return [*argument.flag.split(), argument.name], found


def _type(argument: Argument) -> Any:
    if isinstance(argument.type, tuple):
        return click.Choice(argument.type)
    if argument.type in (int, float) and (argument.min, argument.max) != (None, None):
        ranges: Any = click.IntRange if argument.type is int else click.FloatRange
        return ranges(argument.min, argument.max)
    if argument.type == "path":
        return click.Path(path_type=Path)
    return argument.type if isinstance(argument.type, type) else str


def _parsed(
    parse: Callable[[Any], Any], context: click.Context, parameter: click.Parameter, value: Any
) -> Any:
    return None if value is None else parse(value)


def _metrics(words: tuple[str, ...]) -> dict[str, float]:
    """The metrics that `METRIC=VALUE` words name; raises UsageError if one is malformed."""
    found: dict[str, float] = {}
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
    from .common import opened

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
