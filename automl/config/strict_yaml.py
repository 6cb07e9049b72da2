"""Reads strict YAML. PyYAML only scans, because its `safe_load` reads scalars by YAML 1.1.

A file is one document of at most 64 KiB and 12 levels. Aliases, anchors, tags and duplicate keys
are refused.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from automl.errors import ConfigError

from .nodes import ConfigProblems, Location, Node, shown
from .scalars import check_text, plain_scalar

MAX_BYTES = 64 * 1024
MAX_DEPTH = 12


def read_file(path: Path, problems: ConfigProblems) -> Node | None:
    """The tree of a file; None, with a problem, if it is not YAML.

    Raises:
        ConfigError: the file cannot be opened.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"cannot read the configuration {shown(str(path), 200)}: {reason}"
        ) from error
    return read_bytes(raw, str(path), problems)


def read_bytes(raw: bytes, origin: str, problems: ConfigProblems) -> Node | None:
    """The tree of the content of a file; errors go to `problems`."""
    if len(raw) > MAX_BYTES:
        problems.add(origin, f"a configuration has at most {MAX_BYTES} bytes", 1)
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.add(origin, f"not UTF-8: byte 0x{raw[error.start]:02x}", line)
        return None
    return read_text(text, origin, problems)


def read_text(text: str, origin: str, problems: ConfigProblems) -> Node | None:
    """The tree of a YAML text; None if nothing could be built. Errors go to `problems`."""
    try:
        return _Reader(text, origin, problems).document()
    except _TooDeepError:
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        problems.add(origin, f"not YAML: {reason}", line)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(origin, f"not YAML: character {error.character!r} is not allowed", line)
    except (ValueError, OverflowError) as error:  # from a bad escape such as "\UFFFFFFFF"
        problems.add(origin, f"not YAML: {error}", 1)
    return None


class _TooDeepError(Exception):
    """Raised if a value is nested too deep. Reading ends there."""


class _Reader:
    def __init__(self, text: str, origin: str, problems: ConfigProblems) -> None:
        self.events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        self.origin, self.problems = origin, problems

    def document(self) -> Node | None:
        next(self.events)  # start of the stream
        if isinstance(next(self.events), yaml.StreamEndEvent):
            self.problems.add(self.origin, "the configuration is empty", 1)
            return None
        root = self.node(next(self.events), ())
        next(self.events)  # end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            line = after.start_mark.line + 1
            self.problems.add(self.origin, "one document is needed, here is another", line)
        return root

    def node(self, event: Any, location: Location) -> Node:
        node = Node(None, self.origin, event.start_mark.line + 1)
        if len(location) > MAX_DEPTH:
            self.problems.at(node, location[:3], f"nested more than {MAX_DEPTH} levels deep")
            raise _TooDeepError
        if isinstance(event, yaml.AliasEvent):
            self.problems.at(
                node, location, f"aliases are not allowed, got *{event.anchor}: write the value out"
            )
            return node
        if event.anchor is not None:
            self.problems.at(node, location, f"anchors are not allowed, got &{event.anchor}")
        if event.tag is not None:
            self.problems.at(node, location, f"tags are not allowed, got {shown(event.tag)}")
        if isinstance(event, yaml.ScalarEvent):
            self.scalar(event, node, location)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.value = self.sequence(location)
        else:
            node.value = self.mapping(location)
        return node

    def scalar(self, event: Any, node: Node, location: Location) -> None:
        try:
            if event.style is None:
                node.value = plain_scalar(event.value)
            else:
                node.value = check_text(event.value)
        except ValueError as error:
            self.problems.at(node, location, str(error))

    def sequence(self, location: Location) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, (*location, len(items))))
        return items

    def mapping(self, location: Location) -> dict[str, Node]:
        items: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, location)
            line = event.start_mark.line + 1
            value = self.node(next(self.events), (*location, key or "?"))
            value.line = line
            if key in items:
                text = f"this key is here twice, first on line {items[key].line}"
                self.problems.at(value, (*location, key), text)
            elif key is not None:
                items[key] = value
        return items

    def key(self, event: Any, location: Location) -> str | None:
        """The key as written; None, with a problem, if it is not a plain name."""
        node = Node(None, self.origin, event.start_mark.line + 1)
        if (
            isinstance(event, yaml.ScalarEvent)
            and event.anchor is None
            and event.tag is None
            and event.value
        ):
            try:
                return check_text(event.value)
            except ValueError as error:
                self.problems.at(node, location, str(error))
                return None
        if isinstance(event, yaml.CollectionStartEvent):
            self.node(event, location)
        self.problems.at(node, location, "a key must be a plain name")
        return None
