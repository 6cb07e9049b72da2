"""How an action is declared: its name, arguments, texts, and the function behind it.

The command line and the MCP server read these declarations (`automl.actions.ACTIONS`). Functions
are named by a dotted path and imported when they are called, so that looking at the table loads
none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class Argument:
    """A value that an action takes.

    Args:
        name: in Python and in a call of a tool.
        type: str, int, float, bool, a tuple of choices, or a type that has a name: "sweep", "file"
            (as a text), "path", "duration", "objective", "metrics", "command".
        help: what it is.
        flag: its options on the command line, such as "--trial" or "--output -o"; "" if it has a
            place there.
        metavar: how the command line calls its value.
        default: None if nothing takes its place.
        required: whether it must be given; "mcp" if only there.
        many: whether the command line takes several.
        min, max: bounds of a number.
        on: "shell" or "mcp" if it exists only there.
    """

    name: str
    type: Any = str
    help: str = ""
    flag: str = ""
    metavar: str | None = None
    default: Any = None
    required: bool | Literal["mcp"] = False
    many: bool = False
    min: float | None = None
    max: float | None = None
    on: Literal["", "shell", "mcp"] = ""


@dataclass(frozen=True)
class Action:
    """Something that can be done.

    Args:
        name: the verb of the command line; two words for a verb of a group.
        heading: under which `automl --help` lists it.
        summary: what it does, in a line.
        help: more about it.
        examples: lines to type.
        arguments: what it takes.
        run: the function: it gets the arguments by name and returns the exit status or None.
        opens: "read" or "write" if `run` gets an open `ledger` instead of the store's name.
        parser: class of the command if its words are special, such as a program after `--`.
        exits: exit statuses of its own.
    """

    name: str
    heading: str
    summary: str
    help: str = ""
    examples: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    run: str = ""
    opens: Literal["", "read", "write"] = ""
    parser: str = ""
    exits: str = ""


def resolved(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
