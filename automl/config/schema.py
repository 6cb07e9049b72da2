"""The keys of a configuration, read from its tree, and their errors in plain words."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from automl.core.arguments import WrongValue
from automl.core.keys import UnknownKey, WrongParts, errors_of, read_keys
from automl.core.resources import WorkerRange
from automl.core.spec import KEYS
from automl.errors import UsageError

from .nodes import ConfigProblems, Location, Node, shown


class Document(dict[str, Any]):
    """The values of the keys that are given; another key has its default."""

    def __missing__(self, name: str) -> Any:
        default = KEYS[name].default
        if default is MISSING:
            return None
        return default() if callable(default) else default

    @property
    def max_workers(self) -> int | None:
        """The most slots; None for as many as there is room for."""
        workers: WorkerRange | None = self["workers"]
        return workers.max if workers else None


def validate(root: Node, problems: ConfigProblems) -> Document:
    """The document. Errors go to `problems`, and a wrong key gets its default."""
    data = root.plain()
    if not isinstance(data, dict):
        problems.at(root, (), f"a configuration is a mapping of keys to values, got {shown(data)}")
        return Document()
    try:
        return Document(read_keys(KEYS, data))
    except WrongParts as error:
        add_errors(error, root, (), problems)
        return Document(error.right)


def add_errors(error: UsageError, root: Node, location: Location, problems: ConfigProblems) -> None:
    """Add each error below a location of the tree."""
    for below, one in errors_of(error, location):
        depth = len(root.locate(below)) - 1  # a single goal is no list in the tree
        path = below[: max(depth, len(location))]
        if isinstance(one, UnknownKey):  # even if the value has errors of its own
            problems.at(root.locate(path)[-1], path, one.text)
        elif isinstance(one, WrongValue):
            rule = f"{one.rule} is needed, got {shown(one.value)}{one.hint}"
            problems.under(root, path, rule)
        else:
            problems.under(root, path, str(one))
