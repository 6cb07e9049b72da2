"""The tree of a configuration file. Each value knows its line, for error messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from automl.errors import ConfigError

MAX_SHOWN: Final = 50  # errors of one file
Scalar = bool | int | float | str | None
Location = tuple[str | int, ...]


@dataclass
class Node:
    """A value and its place in the configuration.

    Args:
        value: a scalar, a list of nodes, or a mapping of names to nodes.
        origin: the file, or the override ("override seed=1", "--seed").
        line: from 1; 0 if the value comes from no file.
        broken: an error was reported here, so errors that follow from it are not reported.
    """

    value: Scalar | list[Node] | dict[str, Node]
    origin: str
    line: int = 0
    broken: bool = False

    def plain(self) -> Any:
        """The value as plain Python data."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def broken_below(self) -> bool:
        """Whether an error was reported here or below."""
        nodes = self.value.values() if isinstance(self.value, dict) else self.value
        below = nodes if not isinstance(nodes, Scalar) else ()
        return self.broken or any(node.broken_below() for node in below)

    def child(self, part: str | int) -> Node | None:
        """The value under a key or at an index, or None."""
        if isinstance(self.value, dict):
            return self.value.get(str(part))
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            return self.value[part]
        return None

    def locate(self, location: Iterable[str | int]) -> list[Node]:
        """The existing nodes on the path to a location, this node first."""
        nodes = [self]
        for part in location:
            found = nodes[-1].child(part)
            if found is None:
                break
            nodes.append(found)
        return nodes


@dataclass(frozen=True)
class ConfigProblem:
    """One error: its file and line, its path, and the broken rule with the value."""

    origin: str
    line: int
    path: str
    text: str

    def __str__(self) -> str:
        where = f"{self.origin}:{self.line}" if self.line else self.origin
        return f"{where}: {self.path}: {self.text}" if self.path else f"{where}: {self.text}"


@dataclass
class ConfigProblems:
    """Collects the errors of a configuration, to report all of them at once."""

    found: list[ConfigProblem] = field(default_factory=list)

    def add(self, origin: str, text: str, line: int = 0, path: str = "") -> None:
        """Add an error."""
        self.found.append(ConfigProblem(origin, line, path, text))

    def at(self, node: Node, location: Sequence[str | int], text: str) -> None:
        """Add an error at a node, and mark the node as broken."""
        node.broken = True
        self.add(node.origin, text, node.line, dotted(location))

    def under(self, root: Node, location: Sequence[str | int], text: str) -> None:
        """Add an error at a location of the tree, unless a node on the path is broken."""
        nodes = root.locate(location)
        if not any(node.broken for node in nodes):
            self.at(nodes[-1], location, text)

    def raise_any(self, source: str) -> None:
        """Raise one ConfigError with all errors, in the order of the file."""
        if not self.found:
            return
        lines = [str(p) for p in sorted(self.found, key=lambda p: (p.line == 0, p.line))]
        intro = f"{len(lines)} errors in {source}:\n  " if len(lines) > 1 else ""
        if len(lines) > MAX_SHOWN:
            lines[MAX_SHOWN:] = [f"and {len(lines) - MAX_SHOWN} more"]
        raise ConfigError(intro + "\n  ".join(lines))


def dotted(location: Iterable[str | int]) -> str:
    """`space.width.low` or `goals[1]`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object, limit: int = 60) -> str:
    """A value in the words of YAML, cut to a readable length."""
    words = {None: "nothing", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
