"""A configuration as plain data that knows its lines: strict YAML, and all errors at once.

PyYAML only parses: its `safe_load` reads scalars by YAML 1.1. By 1.2 `1e-3` is a number, and
`no` and `1:30` are words. What YAML readers understand differently (`010`, `.nan`) is refused. A
file is one document of at most 64 KiB and 12 levels; aliases, anchors, tags and duplicate keys are
refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from automl.core.arguments import WrongValue
from automl.core.key_kinds import UnknownKey, WrongParts, errors_of, read_keys
from automl.core.spec import KEYS
from automl.errors import AutomlError, ConfigError, UsageError

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 12
LARGEST: Final = 2**63
Scalar = bool | int | float | str | None
Place = tuple[str | int, ...]  # the path of a part

_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NON_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: the number is not finite, too large, or ambiguous.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _LEADING_ZERO.fullmatch(text):
        raise ValueError(
            f"a leading zero means base 8 to some readers, got {text:.40}: drop it or quote it"
        )
    if _INTEGER.fullmatch(text):
        # int() refuses thousands of digits with a message of its own: the length is checked first.
        number = int(text, 0) if len(text) <= 25 else LARGEST
        if not -LARGEST <= number < LARGEST:
            raise ValueError(f"whole numbers must fit 64 bits, got {text:.40}")
        return number
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    if _FLOAT.fullmatch(text) or _NON_FINITE.fullmatch(text):
        raise ValueError(f"numbers must be finite, got {text:.40}")
    return check_text(text)


def check_text(text: str) -> str:
    """The text if it may be a name or a path.

    Raises:
        ValueError: it holds a control character or half of a surrogate pair.
    """
    if _CONTROL.search(text):
        raise ValueError(f"text must have no control characters, got {text!r:.40}")
    return text


def shown(value: object, limit: int = 60) -> str:
    """A value in the words of YAML, cut to a readable length."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


@dataclass
class WrittenConfig:
    """A configuration as it was written, and everything that is wrong with it.

    Args:
        name: the file, or what else it is.
        data: as plain data; None if nothing could be read.
        lines: by path, where each part was written: the file or the override, and the line, which
            is 0 if it comes from no file.

    Attributes:
        errors: line and text of each.
        broken: paths at which an error was told. What follows from it is not told too.
    """

    name: str
    data: Any = field(default_factory=dict)
    lines: dict[Place, tuple[str, int]] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    broken: set[Place] = field(default_factory=set)

    @classmethod
    def of_file(cls, path: Path) -> WrittenConfig:
        """Read a file.

        Raises:
            ConfigError: it cannot be opened, or it is not YAML.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise ConfigError(
                f"cannot read the configuration {shown(str(path), 200)}: {reason}"
            ) from error
        return cls.of_bytes(raw, str(path))

    @classmethod
    def of_bytes(cls, raw: bytes, name: str) -> WrittenConfig:
        """Read the content of a file; raises ConfigError if it is not YAML."""
        source = cls(name, None)
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            place = name, raw.count(b"\n", 0, error.start) + 1
            source.add((), f"not UTF-8: byte 0x{raw[error.start]:02x}", place)
        else:
            source.data = source.parsed(text)
        if len(raw) > MAX_BYTES:
            source.add((), f"a configuration has at most {MAX_BYTES} bytes", (name, 1))
        if source.data is None:
            source.raise_any()
        return source

    def parsed(self, text: str, at: Place = (), label: str = "") -> Any:
        """The plain data of a YAML text; None, with an error, if nothing can be read.

        Args:
            at: where it goes.
            label: name of the override that it is of; "" for this file.
        """
        try:
            loader: Any = _Loader(text)
            if not loader.check_node():
                self.add((), "the configuration is empty", (self.name, 1))
                return None
            data = self._value(loader.get_node(), at, label)
            if loader.check_node():
                place = self._line(loader.peek_event(), label)
                self.add((), "one document is needed, here is another", place)
            return data
        except RecursionError:
            line, reason = 1, f"nested more than {MAX_DEPTH} levels deep"
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            reason = ", ".join(part for part in (error.context, error.problem) if part)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            reason = f"character {error.character!r} is not allowed"
        except (ValueError, OverflowError) as error:  # from a bad escape such as "\UFFFFFFFF"
            line, reason = 1, str(error)
        self.add(at, f"not YAML: {reason}", (label, 0) if label else (self.name, line))
        return None

    def _line(self, part: Any, label: str) -> tuple[str, int]:
        return (label, 0) if label else (self.name, part.start_mark.line + 1)

    def _value(self, node: Any, at: Place, label: str) -> Any:
        self.lines.setdefault(at, self._line(node, label))
        if node.refused:
            self.add(at, node.refused)
        if len(at) > MAX_DEPTH:
            self.refuse(at[:3], f"nested more than {MAX_DEPTH} levels deep")
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*at, i), label) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at, label)
        try:
            return (plain_scalar if node.style is None else check_text)(node.value)
        except ValueError as error:
            self.add(at, str(error))
            return None

    def _mapping(self, node: Any, at: Place, label: str) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for key, below in node.value:
            name, line = key.value, self._line(key, label)
            is_plain = key.id == "scalar" and name and not key.refused
            if not is_plain or _CONTROL.search(name):
                self.add(at, "a key must be a plain name", line)
                continue
            place = (*at, name)
            if name in items:
                first = self.lines[place][1]
                self.add(place, f"this key is here twice, first on line {first}", line)
            self.lines[place] = line
            items.setdefault(name, self._value(below, place, label))
        return items

    def add(self, path: Place, text: str, line: tuple[str, int] | None = None) -> None:
        """Add an error; without a line, that of the nearest part that exists."""
        origin, number = line or self.lines.get(self._existing(path), (self.name, 0))
        words = [f"{origin}:{number}" if number else origin, _dotted(path), text]
        self.errors.append((number, ": ".join(filter(None, words))))
        if path:
            self.broken.add(path)

    def refuse(self, path: Place, text: str) -> None:
        """Add an error, unless one was told there or above."""
        if not any(path[:length] in self.broken for length in range(len(path) + 1)):
            self.add(path, text)

    def checked(self, path: Place, check: Callable[..., Any], *arguments: Any) -> Any:
        """What `check` returns; None, with errors at this place, if it refuses."""
        try:
            return check(*arguments)
        except AutomlError as error:
            self.refuse_all(path, error)
            return None

    def refuse_all(self, path: Place, error: AutomlError) -> None:
        """Add each single error of a reader of keys, at its own place."""
        known = errors_of(error, path) if isinstance(error, UsageError) else [(path, error)]
        for below, one in known:
            place = below[: max(len(self._existing(below)), len(path))]  # one goal is no list here
            if isinstance(one, UnknownKey):  # even if the value has errors of its own
                self.add(place, one.text)
            elif isinstance(one, WrongValue):
                self.refuse(place, f"{one.rule} is needed, got {shown(one.value)}{one.hint}")
            else:
                self.refuse(place, str(one))

    def is_broken(self, path: Place) -> bool:
        """Whether an error was told there or below."""
        return any(one[: len(path)] == path for one in self.broken)

    def settings(self) -> dict[str, Any]:
        """The value of each key: its default if it is not given, or wrong, which is an error."""
        if not isinstance(self.data, dict):
            given = shown(self.data)
            self.refuse((), f"a configuration is a mapping of keys to values, got {given}")
            self.raise_any()
        try:
            found = read_keys(KEYS, self.data)
        except WrongParts as error:
            self.refuse_all((), error)
            found = error.right
        defaults = {name: one.default for name, one in KEYS.items() if name not in found}
        made = {name: one() if callable(one) else one for name, one in defaults.items()}
        return found | {name: None if one is MISSING else one for name, one in made.items()}

    def raise_any(self) -> None:
        """Raise one ConfigError with all errors, in the order of the file."""
        if not self.errors:
            return
        found = sorted(self.errors, key=lambda one: (one[0] == 0, one[0]))
        lines = [text for _, text in found]
        intro = f"{len(lines)} errors in {self.name}:\n  " if len(lines) > 1 else ""
        raise ConfigError(intro + "\n  ".join(lines))

    def _existing(self, path: Place) -> Place:
        while path and path not in self.lines:
            path = path[:-1]
        return path


def _dotted(path: Place) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class _Loader(yaml.BaseLoader):
    """Notes at a node what YAML readers understand differently: an alias, an anchor or a tag."""

    def compose_node(self: Any, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            self.get_event()
            marks: Any = event.start_mark, event.end_mark
            node: Any = yaml.ScalarNode("", "", *marks)
            node.refused = f"aliases are not allowed, got *{event.anchor}: write the value out"
            return node
        node = yaml.BaseLoader.compose_node(self, parent, index)
        node.refused = ""
        if event.anchor is not None:
            node.refused = f"anchors are not allowed, got &{event.anchor}"
        elif event.tag is not None:
            node.refused = f"tags are not allowed, got {shown(event.tag)}"
        return node
