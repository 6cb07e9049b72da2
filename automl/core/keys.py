"""A setting is declared once, by its `Key`: what it may be, its meaning, an example, its flag.

The fields of `SweepSpec`, `Budget`, `Resources` and `WorkerRange` carry their keys. What reads a
configuration, a flag or a keyword argument derives from them, and so does the reference page.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, Final

from automl.errors import UsageError
from search_spaces.other_tools import WORDS
from search_spaces.plugins import nearest
from search_spaces.validation import show

from . import arguments
from .arguments import WrongValue
from .durations import parse_duration
from .goals import parse_memory

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Kind:
    """What a value may be.

    Args:
        words: for people.
        read: takes a name for messages and a value; returns the plain value, raises UsageError.
        keys: of its parts, if it is a mapping of known keys.
    """

    words: str
    read: Callable[[str, Any], Any]
    keys: Mapping[str, Key] = field(default_factory=dict)


@dataclass(frozen=True)
class Key:
    """A setting.

    Args:
        kind: of its value.
        meaning: in Markdown, with links from `docs/reference/`.
        example: in YAML; of a key below another one, without that.
        default: its value if it is not given; `MISSING` if it must be.
        words: about the default, if its value says too little.
        flag: of the command line, with the word for its value: "--budget TIME".
    """

    kind: Kind
    meaning: str
    example: str
    default: Any = None
    words: str = ""
    flag: str = ""

    def read(self, name: str, value: Any) -> Any:
        """The plain value; raises UsageError if it has another kind."""
        return None if value is self.default is None else self.kind.read(name, value)

    @property
    def help(self) -> str:
        """The meaning without Markdown and links."""
        text = re.sub(r" See \[.*", "", self.meaning)
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def key(
    kind: Kind, meaning: str, example: str, default: Any = MISSING, words: str = "", flag: str = ""
) -> Any:
    """A field of a dataclass that is a setting; a default that is called makes the value."""
    metadata = {"key": Key(kind, meaning, example, default, words, flag)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def keys_of(model: Any) -> dict[str, Key]:
    """The settings of a dataclass, by name."""
    return {one.name: one.metadata["key"] for one in fields(model) if "key" in one.metadata}


class UnknownKey(WrongValue):
    """A key that there is not."""

    def __init__(self, name: str, known: Iterable[str], of: str) -> None:
        said = WORDS.get(str(name), "")
        said = re.sub('`(\\w+)="(.*?)"`', r"`\1: \2`", said)  # as a mapping has it
        hint = said or nearest(name, sorted(known))
        UsageError.__init__(self, f"unknown key {show(name)} of {of}; {hint}")
        self.text = f"unknown key; {hint}"


class WrongParts(UsageError):
    """Parts of a mapping or a list are wrong.

    Args:
        parts: each error with its path.
        right: the other parts.
    """

    def __init__(self, parts: Sequence[tuple[Path, UsageError]], right: Any = None) -> None:
        super().__init__("; ".join(str(error) for _, error in parts))
        self.parts, self.right = parts, right


def errors_of(error: UsageError, at: Path = ()) -> list[tuple[Path, UsageError]]:
    """Each single error with its path."""
    if isinstance(error, WrongParts):
        return [((*at, *path), part) for path, part in error.parts]
    return [(at, error)]


def read_keys(keys: Mapping[str, Key], given: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """The plain values of the keys that are given.

    Args:
        of: name of the whole, for messages.

    Raises:
        WrongParts: with the error of each wrong key.
    """

    def read(name: Any, value: Any) -> Any:
        if name not in keys:
            raise UnknownKey(name, keys, of)
        return keys[name].read(f"{name} of {of}" if of else name, value)

    return _read_parts(read, given.items())


def _read_parts(
    read: Callable[[Any, Any], Any], given: Iterable[tuple[Any, Any]]
) -> dict[Any, Any]:
    found, wrong = {}, []
    for name, value in given:
        try:
            found[name] = read(name, value)
        except UsageError as error:
            wrong += errors_of(error, (name,))
    if wrong:
        raise WrongParts(wrong, found)
    return found


def _listed(item: Kind, name: str, value: Any) -> tuple[Any, ...]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(_read_parts(lambda _, one: item.read(name, one), enumerate(items)).values())


def _mapped(item: Kind, name: str, value: Any) -> dict[str, Any]:
    given = arguments.mapping(name, value).items()
    return _read_parts(lambda part, one: item.read(f"{part} of {name}", one), given)


def _bounded(least: float, open_end: bool, name: str, value: Any) -> float:
    number = arguments.finite(name, value)
    if number < least or (open_end and number == least):
        words = "more than" if open_end else "a number of at least"
        raise WrongValue(name, f"{words} {least:g}", value)
    return number


def _duration(zero: bool, name: str, value: Any) -> float:
    if isinstance(value, bool):
        raise WrongValue(name, "a duration such as 90s, 10m or 1h30m", value)
    return parse_duration(value, zero=zero)


def _size(name: str, value: Any) -> int:
    return parse_memory(value) if isinstance(value, str) else arguments.whole(name, value, least=1)


def _one_of(names: Sequence[str], name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in names:
        close = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        words = f"one of {', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        raise WrongValue(name, words if len(names) > 1 else repr(names[0]), value, hint)
    return value


def whole(least: int | None = None, most: int | None = None) -> Kind:
    """A whole number."""
    bounds = [f"at least {least:,}"] if least is not None else []
    bounds += [f"at most {most:,}"] if most is not None else []
    words = "whole number" + (f" of {' and '.join(bounds)}" if bounds else "")
    return Kind(words, partial(arguments.whole, least=least, most=most))


def above(least: float) -> Kind:
    """A number above a bound."""
    return Kind(f"number of more than {least:g}", partial(_bounded, least, True))


def at_least(least: float) -> Kind:
    """A number that is not below a bound."""
    return Kind(f"number of at least {least:g}", partial(_bounded, least, False))


def one_of(*names: str) -> Kind:
    """One of these words."""
    return Kind(", ".join(f"`{name}`" for name in names), partial(_one_of, names))


def listed(item: Kind) -> Kind:
    """A list, or a single item; a tuple when it is read."""
    return Kind(f"{item.words}, or a list of these", partial(_listed, item))


def mapped(item: Kind) -> Kind:
    """A mapping of names to values of a kind."""
    return Kind("mapping", partial(_mapped, item))


NUMBER: Final = Kind("number", arguments.finite)
FLAG: Final = Kind("true or false", partial(arguments.of_type, kind=bool, rule="true or false"))
TEXT: Final = Kind("text", arguments.text)
MAPPING: Final = Kind("mapping", lambda name, value: dict(arguments.mapping(name, value)))
DURATION: Final = Kind("duration", partial(_duration, False))
DURATION_OR_ZERO: Final = Kind("duration, or `0s`", partial(_duration, True))
SIZE: Final = Kind("size", _size)
