"""The arguments of a command: braces in them are replaced by the values of parameters."""

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from search_spaces.errors import UsageError
from search_spaces.plugins import nearest

PARAMS: Final = "params"
CONFIG: Final = "config"
_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def check(arguments: Sequence[str], names: Collection[str]) -> None:
    """Check the braces of a command.

    Args:
        arguments: of the command.
        names: of the parameters.

    Raises:
        UsageError: braces hold another word than a parameter's name, `params` or `config`.
    """
    for argument in arguments:
        for found in _PART.finditer(argument):
            whole, name = found[0], found[1]
            if whole in ("{{", "}}"):
                continue
            if name is None:
                raise UsageError(
                    f"a brace in the argument {argument!r} has no partner: "
                    f"write {whole * 2} for a brace of your own"
                )
            if name not in names and name not in (PARAMS, CONFIG):
                known = [*names, PARAMS, CONFIG]
                raise UsageError(
                    f"the argument {argument!r} names no parameter: {nearest(name, known)} "
                    f"(write {{{{{name}}}}} for braces of your own)"
                )


def fill(arguments: Sequence[str], params: Mapping[str, Any], config: str) -> list[str]:
    """The arguments of a trial.

    `{params}` alone becomes an argument `--key=value` for each parameter, `{config}` the path of a
    JSON file of them. An argument that holds a parameter that is inactive or None is left out.

    Args:
        arguments: checked by `check`.
        params: the active parameters.
        config: path of the JSON file.
    """
    filled = []
    for argument in arguments:
        if argument == f"{{{PARAMS}}}":
            filled += pairs(params)
        elif (text := replaced(argument, params, config)) is not None:
            filled.append(text)
    return filled


def fill_shell(line: str, params: Mapping[str, Any], config: str) -> str:
    """The line of a shell: values are quoted; one that is inactive or None is an empty text."""
    known = {name: text_of(value) for name, value in params.items() if value is not None}
    known[CONFIG] = config

    def quoted(found: re.Match[str]) -> str:
        if found[1] == PARAMS:
            return shlex.join(pairs(params))
        return found[0][0] if found[1] is None else shlex.quote(known.get(found[1], ""))

    return _PART.sub(quoted, line)


def replaced(text: str, params: Mapping[str, Any], config: str) -> str | None:
    """A text with its braces replaced; None if it holds a parameter that is inactive or None."""
    known = {name: text_of(value) for name, value in params.items() if value is not None}
    known |= {CONFIG: config, PARAMS: " ".join(pairs(params))}
    names = [found[1] for found in _PART.finditer(text) if found[1] is not None]
    if not all(name in known for name in names):
        return None
    return _PART.sub(lambda m: m[0][0] if m[1] is None else known[m[1]], text)


def pairs(params: Mapping[str, Any]) -> list[str]:
    """`--key=value` for each parameter that is not None."""
    return [f"--{name}={text_of(value)}" for name, value in params.items() if value is not None]


def text_of(value: Any) -> str:
    """A value as the text of an argument: true and false for booleans, JSON for lists."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return json.dumps(value)
    return str(value)
