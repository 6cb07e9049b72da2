"""Overrides on the command line: `budget.trials=10`, `space.precision=[fp32,bf16]`.

They change a configuration, or the space of a stored sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from automl.suggesters.user_prior import KEYS
from search_spaces import Float, Int, Space

from . import entries
from .nodes import ConfigProblem, ConfigProblems, Node, dotted, shown
from .scalars import plain_scalar
from .strict_yaml import MAX_BYTES, MAX_DEPTH, read_text

# The sections whose keys are parameters, with the fields that an entry can have.
FIELDS: Final[Mapping[str, Collection[str]]] = {
    "space": tuple(entries.KEYS),
    "prior": KEYS,
    "fixed": (),
    "reports": (),
}

_RULE: Final = "an override is KEY=VALUE with a dotted key, such as budget.trials=10"


@dataclass(frozen=True)
class Override:
    """A value for a dotted key.

    Args:
        key: such as `space.learning_rate.low`.
        value: YAML text; lists and mappings are written as `[...]` and `{...}`.
        label: name of the override in messages.
    """

    key: str
    value: str
    label: str

    @classmethod
    def parse(cls, text: str) -> Override | None:
        """Parse KEY=VALUE; None if the text has another form."""
        key, equals, value = text.partition("=")
        known = all(part and part.isprintable() and part == part.strip() for part in key.split("."))
        return cls(key, value, f"override {shown(text)}") if equals and known else None


def apply(root: Node, overrides: Iterable[str | Override], problems: ConfigProblems) -> None:
    """Set each override in the tree; later ones win. Errors go to `problems`."""
    for given in overrides:
        override = Override.parse(given) if isinstance(given, str) else given
        if override is None:
            problems.add(f"override {shown(given)}", _RULE)
        else:
            _set(root, override, problems)


def plain_changes(overrides: Sequence[str]) -> dict[str, Any]:
    """The plain values of KEY=VALUE words by their keys.

    Raises:
        ConfigError: a word or a value is malformed.
    """
    problems, found = ConfigProblems(), dict[str, Any]()
    for text in overrides:
        override = Override.parse(text)
        if override is None:
            problems.add(f"override {shown(text)}", _RULE)
        elif (value := _value(override, problems)) is not None:
            found[override.key] = value.plain()
    problems.raise_any("what to set")
    return found


def with_changes(space: Space, overrides: Sequence[str]) -> Space:
    """The space after overrides of `space.NAME`, as a configuration has them.

    A field that is not named stays. A list of two numbers is the range of a number. An entry of
    another name is a new parameter.

    Raises:
        ConfigError: an override is malformed or names something else than a parameter.
    """
    problems = ConfigProblems()
    # The names of the space with no fields, so that overrides find them.
    names = {name: Node({}, "the sweep") for name in space.parameters}
    root = Node({"space": Node({**names}, "the sweep")}, "the sweep")
    for text in overrides:
        if not text.startswith("space."):
            rule = "only the space can be changed here: space.NAME.FIELD=VALUE, space.NAME=[...]"
            problems.add(f"override {text!r}", rule)
    problems.raise_any("the overrides")
    apply(root, overrides, problems)
    problems.raise_any("the overrides")
    changed = dict(space.parameters)
    for name, entry in root.plain()["space"].items():
        base = space.parameters.get(name)
        if base is not None and entry == {}:
            continue
        if isinstance(base, Float | Int) and isinstance(entry, list) and len(entry) == 2:
            entry = dict(zip(("low", "high"), entry, strict=True))
        if found := entries.read_entry(entry, base, root, name, problems):
            changed[name] = found[0]
    problems.raise_any("the overrides")
    return Space(*changed.values(), constraints=space.constraints)


def _set(root: Node, override: Override, problems: ConfigProblems) -> None:
    value = _value(override, problems)
    parts = _parts(root, override.key)
    if value is None:
        return
    if len(parts) > MAX_DEPTH:
        problems.at(value, (), f"a key has at most {MAX_DEPTH} parts")
        return
    node = root
    for depth, part in enumerate(parts):
        if not isinstance(node.value, dict):
            # `precision: auto` and `precision.default=bf16` may be combined.
            if node.value not in (None, "auto"):
                problems.at(
                    Node(None, override.label),
                    parts,
                    f"{dotted(parts[:depth])} has no parts to set",
                )
                return
            node.value = {}
        last = depth == len(parts) - 1
        following = value if last else node.value.setdefault(part, Node({}, override.label))
        node.value[part] = following
        node = following


def _parts(root: Node, key: str) -> list[str]:
    """The path of a key. Names of parameters may have dots themselves: `space.model.lr.low`.

    A name ends where it is one of the file's, else before the first field of an entry.
    """
    section, *rest = key.split(".")
    if section not in FIELDS or not rest:
        return [section, *rest]
    node = root.child(section)
    known = node.value if node is not None and isinstance(node.value, dict) else {}
    names = (".".join(rest[:length]) for length in range(len(rest), 0, -1))
    name = next((name for name in names if name in known), None)
    if name is None:
        fields = (i for i, part in enumerate(rest) if i and part in FIELDS[section])
        name = ".".join(rest[: next(fields, len(rest))])
    inner = rest[name.count(".") + 1 :]
    if inner[:1] == ["when"] and len(inner) > 1:  # a parent's name
        inner = ["when", ".".join(inner[1:])]
    return [section, name, *inner]


def _value(override: Override, problems: ConfigProblems) -> Node | None:
    """The value as a tree; None, with a problem, if it is malformed."""
    text = override.value.strip(" ")
    before = len(problems.found)
    if len(text) > MAX_BYTES:
        text = f"at most {MAX_BYTES} characters"
        problems.add(override.label, text, path=override.key)
        return None
    if text[:1] not in ("[", "{", '"', "'"):
        try:
            return Node(plain_scalar(text), override.label)
        except ValueError as error:
            problems.add(override.label, str(error), path=override.key)
            return None
    node = read_text(text, override.label, problems)
    # An override has no lines. Paths in its value begin with its key.
    problems.found[before:] = [
        ConfigProblem(p.origin, 0, _joined(override.key, p.path), p.text)
        for p in problems.found[before:]
    ]
    return _without_lines(node) if node and len(problems.found) == before else None


def _joined(key: str, path: str) -> str:
    return f"{key}{path}" if path[:1] in ("", "[") else f"{key}.{path}"


def _without_lines(node: Node) -> Node:
    value = node.value
    for child in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        _without_lines(child)
    node.line = 0
    return node
