"""The arguments of a command: braces in them stand for parameters and for facts of the attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from search_spaces import Choice
from search_spaces.errors import UsageError
from search_spaces.parameters import Parameter
from search_spaces.plugins import nearest

ALL: Final = "params"  # stands for an argument `--NAME=VALUE` for each parameter
FACTS: Final = ("trial", "trial_dir", "checkpoint_dir", "seed", "config")
_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FLAG: Final = re.compile(r"--?[A-Za-z][^={}]*")


def check(arguments: Sequence[str], names: Collection[str]) -> None:
    """Check the braces of a command.

    Args:
        arguments: of the command.
        names: of the parameters.

    Raises:
        UsageError: braces hold a word that is neither a parameter nor a fact of an attempt.
    """
    known = [*names, *FACTS, ALL]
    for argument in arguments:
        for part in _PART.finditer(argument):
            name, brace = part[1], part[0] * 2
            said = f"a brace in the argument {argument!r} has no partner: write {brace}"
            if name is not None:
                hint = nearest(name, known)
                said = f"the argument {argument!r} names no parameter: {hint}; write {{{{{name}}}}}"
            if name not in known and part[0] not in ("{{", "}}"):
                raise UsageError(f"{said} for braces of your own")


def flags_of(parameters: Mapping[str, Parameter]) -> frozenset[str]:
    """The parameters that are flags themselves, such as a choice of "--nesterov" and None."""
    return frozenset(
        name
        for name, parameter in parameters.items()
        if isinstance(parameter, Choice) and any(_is_flag(value) for value in parameter.choices)
    )


def _is_flag(text: Any) -> bool:
    return isinstance(text, str) and _FLAG.fullmatch(text) is not None


@dataclass(frozen=True)
class Braces:
    """What braces stand for in one attempt.

    Args:
        params: the active parameters; they win over facts of the same name.
        facts: by name, see `FACTS`.
        flags: see `flags_of`.
    """

    params: Mapping[str, Any]
    facts: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()

    def fill(self, arguments: Sequence[str]) -> list[str]:
        """The arguments of the attempt.

        An argument that holds a parameter that is inactive or None is left out, with the flag
        before it.
        """
        filled: list[str] = []
        before = ""  # the argument before, as it was given
        for argument in arguments:
            if argument == f"{{{ALL}}}" and ALL not in self.params:
                filled += self._pairs
            elif (text := self.replaced(argument)) or not argument:
                filled.append(text or "")
            elif _is_flag(before) and not (argument[0] == "-" or self.flags & {*_named(argument)}):
                filled.pop()  # the argument would have been no flag itself
            before = argument
        return filled

    def replaced(self, text: str) -> str | None:
        """A text with its braces replaced; None if it holds a parameter without a value."""
        if any(self._texts.get(name) is None for name in _named(text)):
            return None
        return _PART.sub(lambda m: m[0][0] if m[1] is None else str(self._texts[m[1]]), text)

    @cached_property
    def _pairs(self) -> list[str]:
        values = self.params.items()
        return [f"--{name}={text_of(value)}" for name, value in values if value is not None]

    @cached_property
    def _texts(self) -> dict[str, str | None]:
        """By name what stands for it; None for a parameter that is None."""
        values = self.params.items()
        own = {name: None if value is None else text_of(value) for name, value in values}
        return {ALL: " ".join(self._pairs), **self.facts, **own}


def _named(text: str) -> list[str]:
    return [part[1] for part in _PART.finditer(text) if part[1] is not None]


def unnamed(command: str, names: Collection[str]) -> list[str]:
    """The parameters that no placeholder of a command stands for; none if one stands for all."""
    if any(f"{{{name}}}" in command for name in (ALL, "config")):
        return []
    return [name for name in names if f"{{{name}}}" not in command]


def with_absolute_path(argument: str, folder: str) -> str:
    """The argument, or what follows its first `=`, as an absolute path if it is one in a folder.

    A name without a slash is a path only if it is that of a file.
    """
    key, equals, text = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    path = Path(folder, text)
    if text and (path.is_file() or ("/" in text and path.exists())):
        return f"{key}{equals}{path}"
    return argument


def text_of(value: Any) -> str:
    """A value as the text of an argument: true and false for booleans, JSON for lists.

    A number below zero has no exponent: argparse takes -1e-05 for an option.
    """
    if isinstance(value, bool | tuple | list):
        return json.dumps(value)
    if isinstance(value, float) and value < 0:
        return f"{Decimal(repr(value)):f}"
    return str(value)
