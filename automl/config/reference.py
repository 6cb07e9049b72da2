"""The reference of the configuration: every key with its type, default, meaning and example.

Types and defaults are read from the schema. `docs/reference/configuration.md` shows the result.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, PlainValidator
from pydantic.fields import FieldInfo

from .key_texts import KEY_TEXTS, KeyText
from .schema import BudgetSection, Document, Entry, ResourcesSection, WorkersSection

# By the function that reads a value of its own kind.
_WORDS: Final = {
    "_seconds": "duration",
    "_bytes": "size",
    "_number": "number",
    "_value": "value",
    "_values": "list of values",
    "_plugin": "name, or a mapping of name and options",
    "_ranks": "whole number, or the name of a parameter",
    "_space": "mapping, or `auto`",
    "parse": "goal",
}
_TYPES: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    dict: "mapping",
}
# The keys below a key, and the prefix of their names in `KEY_TEXTS`.
PARTS: Final[dict[str, type[BaseModel]]] = {
    "space": Entry,
    "budget": BudgetSection,
    "workers": WorkersSection,
    "resources": ResourcesSection,
}


def keys() -> Iterator[tuple[str, FieldInfo]]:
    """Every key with its field: `goals`, `budget.trials`, `space.low` and so on."""
    for name, field in Document.model_fields.items():
        yield name, field
        for part, inner in PARTS[name].model_fields.items() if name in PARTS else ():
            yield f"{name}.{part}", inner


def type_of(field: FieldInfo) -> str:
    """The type of a key, for a person."""
    return _kind(field.annotation, field.metadata)


def default_of(name: str, field: FieldInfo) -> str:
    """The default of a key, for a person; `required` if there is none."""
    if text := KEY_TEXTS[name].default:
        return text
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value == "" or isinstance(value, BaseModel | dict | list):
        return "none"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def markdown() -> str:
    """The reference as Markdown: a heading for each key, a table of the keys below it."""
    fields = dict(keys())
    lines: list[str] = []
    for name in Document.model_fields:
        text = KEY_TEXTS[name]
        lines += [f"### `{name}`", "", text.meaning, ""]
        lines += [
            f"- Type: {type_of(fields[name])}",
            f"- Default: {default_of(name, fields[name])}",
        ]
        lines += ["", "```yaml", text.example, "```", ""]
        if name in PARTS:
            below = {key: field for key, field in fields.items() if key.startswith(f"{name}.")}
            lines += [*_table(below), ""]
    return "\n".join(lines)


def _table(fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield "| key | type | default | meaning | example |"
    yield "|---|---|---|---|---|"
    for name, field in fields.items():
        text: KeyText = KEY_TEXTS[name]
        cells = type_of(field), default_of(name, field), text.meaning, f"`{text.example}`"
        yield f"| `{name.partition('.')[2]}` | {' | '.join(cells)} |"


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """The type that an annotation and its metadata describe."""
    details = list(_flat(metadata))
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], [*arguments[1:], *details])
    for detail in details:
        if isinstance(detail, PlainValidator):
            return _WORDS[detail.func.__name__]
    if origin in (Union, types.UnionType):
        members = [_kind(part) for part in arguments if part is not types.NoneType]
        return " or ".join(dict.fromkeys(members))
    if origin is list:
        return f"{_kind(arguments[0])}, or a list of these"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return f"{_TYPES[origin or annotation]}{_bounds(details)}"


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for detail in metadata:
        if isinstance(detail, FieldInfo):
            yield from detail.metadata
        else:
            yield detail


def _bounds(details: Iterable[Any]) -> str:
    """The bounds of a number, such as " of at least 1"."""
    found = []
    for detail in details:
        if isinstance(detail, Ge):
            found.append(f"at least {detail.ge:,}")
        elif isinstance(detail, Gt):
            found.append(f"more than {detail.gt:,}")
        elif isinstance(detail, Le):
            found.append(f"at most {detail.le:,}")
        elif isinstance(detail, Lt):
            found.append(f"less than {detail.lt:,}")
    return f" of {' and '.join(found)}" if found else ""
