"""The schemas of the bodies and answers of operations, made from the table of actions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model

from automl.actions import OPERATIONS
from automl.actions.action import DONE, Argument
from automl.actions.arguments import MAX_NAME
from automl.core.names import MAX_NAME as MAX_SWEEP
from automl.errors import FAILURE_KINDS

MAX_METRICS: Final = 2000  # in one body
MAX_CHOICES: Final = 10_000
MAX_WORDS: Final = 1000  # of a command
MAX_WORD: Final = 100_000  # characters; Linux takes 128 kB
_STRICT: Final = ConfigDict(extra="forbid", strict=True)  # no conversion of texts to numbers
_OPEN: Final = ConfigDict(extra="allow")  # later versions may add fields

Finite = Annotated[float, Field(allow_inf_nan=False)]
Metric = Finite | Literal["nan", "inf", "-inf"]
Value = bool | int | float | str | None
Choice = Value | list[Value]
Word = Annotated[str, Field(max_length=MAX_WORD)]  # of a command
Name = Annotated[str, Field(max_length=MAX_NAME)]
Tag = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^\S+$")]
Range: Any = create_model(
    "Range", __config__=_STRICT, low=(Finite | None, None), high=(Finite | None, None)
)
Choices: Any = create_model(
    "Choices",
    __config__=_STRICT,
    choices=(Annotated[list[Choice], Field(min_length=1, max_length=MAX_CHOICES)], ...),
)
_TYPES: Final[dict[Any, Any]] = {
    float: Finite,
    "duration": Annotated[Finite, Field(gt=0, le=1e9)],
    "metrics": Annotated[dict[Name, Metric], Field(max_length=MAX_METRICS)] | Metric,
    "params": dict[Name, Choice],
    "limits": dict[Name, Range | Choices | Choice],
    "names": list[Name],
    "sweep": Annotated[str, Field(max_length=MAX_SWEEP)],
    "command": Annotated[list[Word], Field(min_length=1, max_length=MAX_WORDS)],
    "tags": Annotated[list[Tag], Field(max_length=100)],
    "failure": Literal[tuple(FAILURE_KINDS)],
}


@cache
def body_of(operation: str) -> type[BaseModel]:
    """The schema of the body of an operation."""
    action, found = OPERATIONS[operation]
    return schema_of(f"{_title(operation)}Body", action.fields(found))


def schema_of(title: str, arguments: Iterable[Argument]) -> type[BaseModel]:
    """The schema of an object of these arguments."""
    fields: Any = {one.name: _field(one) for one in arguments}
    return create_model(title, __config__=_STRICT, **fields)


@cache
def answer_of(operation: str) -> type[BaseModel]:
    """The schema of the answer of an operation."""
    action, _ = OPERATIONS[operation]
    fields: Any = {
        name: (kind, Field(None if NoneType in get_args(kind) else ..., description=words or None))
        for name, (kind, words) in (action.answer or DONE).items()
    }
    return create_model(f"{_title(operation)}Answer", __config__=_OPEN, **fields)


def _title(operation: str) -> str:
    return operation.title().replace("_", "")


def _field(argument: Argument) -> tuple[Any, Any]:
    """Type and field of an argument."""
    kind = _TYPES.get(argument.type, argument.type)
    bounds = {"ge": argument.min, "le": argument.max, "max_length": argument.max_length}
    known: Any = {name: bound for name, bound in bounds.items() if bound is not None}
    kind = Annotated[kind, Field(**known)] if known else kind
    words = argument.help.partition("  [default")[0]
    words += " In seconds." if argument.type == "duration" else ""
    if argument.required:
        return kind, Field(description=words)
    if argument.many:
        return kind, Field(default_factory=list, description=words)
    optional = kind | None if argument.default is None else kind
    return optional, Field(argument.default, description=words)
