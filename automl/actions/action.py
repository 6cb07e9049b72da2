"""How an action is declared: its name, arguments, texts, who may do it, and the function behind it.

The command line, the HTTP API, the studio's process and the Python functions read these
declarations (`automl.actions.ACTIONS`). Functions are named by a dotted path and imported when they
are called, so that looking at the table loads none of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
DONE: Final[Mapping[str, tuple[Any, str]]] = {"done": (str, "What happens, in words.")}


@dataclass(frozen=True)
class Argument:
    """A value that an action takes.

    Args:
        name: in Python and in the body of a request.
        type: str, int, float, bool, a tuple of choices, or a type that has a name: "sweep", "file"
            (as a text), "path", "duration", "objective", "metrics", "params", "limits", "names",
            "tags", "failure".
        help: what it is.
        flag: its options on the command line, such as "--trial" or "--output -o"; "" if it has a
            place there.
        metavar: how the command line calls its value.
        default: None if nothing takes its place.
        required: whether it must be given; "http" if only there.
        many: whether the command line takes several.
        min, max: bounds of a number.
        max_length: of a text.
        on: "shell" or "http" if it exists only there.
    """

    name: str
    type: Any = str
    help: str = ""
    flag: str = ""
    metavar: str | None = None
    default: Any = None
    required: bool | Literal["http"] = False
    many: bool = False
    min: float | None = None
    max: float | None = None
    max_length: int | None = None
    on: Literal["", "shell", "http"] = ""


@dataclass(frozen=True)
class Operation:
    """What the HTTP API calls an action on a sweep, or on one of its trials.

    Args:
        name: of the operation, unique.
        path: below `/api/sweeps/{sweep}`; `{trial}` in it is the number of a trial.
        effect: the function; it gets an open ledger, the sweep, and arguments by name.
        help: what it does, in a sentence.
        without: names of arguments that it does not take.
    """

    name: str
    path: str
    effect: str
    help: str
    without: tuple[str, ...] = ()

    @property
    def route(self) -> str:
        """The whole path."""
        return f"/api/sweeps/{{sweep}}{self.path}"

    @property
    def of_trial(self) -> bool:
        """Whether it is about one trial."""
        return "{trial}" in self.path

    def perform(self, ledger: Any, sweep: str, **arguments: Any) -> Mapping[str, Any]:
        """Do it; the answer in plain data."""
        found = resolved(self.effect)(ledger, sweep, **arguments)
        return found if isinstance(found, Mapping) else {"done": found}


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
        run: the function of the command line: it gets the arguments by name and returns the exit
            status or None. Without it, the command line performs the operation.
        opens: "read" or "write" if `run` gets an open `ledger` instead of the store's name.
        operations: of the HTTP API: on a sweep, on a trial, or both.
        role: who may do them.
        answer: fields of their answers: type and meaning by name.
        show: prints such an answer and returns the exit status or None; "" to print what is done.
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
    operations: tuple[Operation, ...] = ()
    role: Literal["operator", "agent"] = "operator"
    answer: Mapping[str, tuple[Any, str]] | None = None
    show: str = ""
    parser: str = ""
    exits: str = ""

    def operation(self, *, of_trial: bool) -> Operation:
        """The operation on a trial, or on the sweep; the only one if there is one."""
        return next(
            (one for one in self.operations if one.of_trial == of_trial), self.operations[0]
        )

    def fields(self, operation: Operation) -> list[Argument]:
        """What the body of a request may have."""
        left_out = {"sweep", "trial", *operation.without}
        return [one for one in self.arguments if one.on != "shell" and one.name not in left_out]


def resolved(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def documented(action: Action) -> Callable[[F], F]:
    """Complete the docstring of the Python function behind an action by its arguments."""

    def complete(function: F) -> F:
        taken = inspect.signature(function).parameters
        known = [one for one in action.arguments if one.name in taken]
        lines = [f"    {one.name}: {one.help}" for one in known if one.help]
        doc = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = "\n".join([doc, "", "Args:", *lines])
        return function

    return complete
