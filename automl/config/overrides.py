"""What people type as KEY=VALUE: `budget.trials=10`, `space.precision=[fp32,bf16]`.

It changes a configuration, or what may change of a sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from automl.core.resources import LIMITS, WorkerRange, read_workers
from automl.errors import UsageError
from automl.suggesters.domain import Limit
from automl.suggesters.user_prior import KEYS
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.validation import plain, show

from . import entries
from .source import Place, WrittenConfig, plain_scalar, shown

# The sections whose keys are parameters, with the fields that an entry can have.
FIELDS: Final[Mapping[str, Collection[str]]] = {
    "space": tuple(entries.KEYS),
    "prior": KEYS,
    "fixed": (),
    "reports": (),
}


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


def apply(source: WrittenConfig, overrides: Iterable[str | Override]) -> None:
    """Set each override in a configuration; later ones win."""
    for given in overrides:
        if override := _parsed(source, given):
            _set(source, override)


def plain_changes(overrides: Sequence[str]) -> dict[str, Any]:
    """The plain values of KEY=VALUE words by their keys.

    Raises:
        ConfigError: a word or a value is malformed.
    """
    source, found = WrittenConfig("what to set"), dict[str, Any]()
    for text in overrides:
        if override := _parsed(source, text):
            found[override.key] = _value(source, override, (override.key,))
    source.raise_any()
    return found


def _parsed(source: WrittenConfig, given: str | Override) -> Override | None:
    if isinstance(given, Override):
        return given
    key, equals, value = given.partition("=")
    label = f"override {shown(given)}"
    if equals and all(
        part and part.isprintable() and part == part.strip() for part in key.split(".")
    ):
        return Override(key, value, label)
    rule = "an override is KEY=VALUE with a dotted key, such as budget.trials=10"
    source.add((), rule, (label, 0))
    return None


def _set(source: WrittenConfig, override: Override) -> None:
    path = _path(source.data, override.key)
    inner = source.data
    for depth, part in enumerate(path[:-1]):
        if inner.get(part) in (None, "auto"):
            # `precision: auto` and `precision.default=bf16` may be combined.
            inner[part] = {}
            source.lines[path[: depth + 1]] = override.label, 0
        inner = inner[part]
        if not isinstance(inner, dict):
            words = f"{'.'.join(path[: depth + 1])} has no parts to set"
            source.add(path, words, (override.label, 0))
            return
    for known in [one for one in source.lines if one[: len(path)] == path]:
        del source.lines[known]
    errors = len(source.errors)
    value = _value(source, override, path)
    if len(source.errors) == errors:
        inner[path[-1]] = value
        source.lines[path] = override.label, 0


def _path(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The path of a key. Names of parameters may have dots themselves: `space.model.lr.low`.

    A name ends where it is one of the file's, else before the first field of an entry.
    """
    section, *rest = key.split(".")
    if section not in FIELDS or not rest:
        return (section, *rest)
    known = data.get(section)
    names = (".".join(rest[:length]) for length in range(len(rest), 0, -1))
    name = next((one for one in names if isinstance(known, dict) and one in known), None)
    if name is None:
        fields = (i for i, part in enumerate(rest) if i and part in FIELDS[section])
        name = ".".join(rest[: next(fields, len(rest))])
    inner = rest[name.count(".") + 1 :]
    if inner[:1] == ["when"] and len(inner) > 1:  # a parent's name
        inner = ["when", ".".join(inner[1:])]
    return (section, name, *inner)


def _value(source: WrittenConfig, override: Override, path: Place) -> Any:
    """The plain value; None, with an error, if it is malformed."""
    text, line = override.value.strip(" "), (override.label, 0)
    if text[:1] in ("[", "{", '"', "'"):
        return source.parsed(text, path, override.label)
    try:
        return plain_scalar(text)
    except ValueError as error:
        source.add(path, str(error), line)
        return None


@dataclass(frozen=True)
class Changes:
    """What is set of a sweep.

    Args:
        budget: by limit; None removes it.
        workers: None if they stay.
        space: by parameter, not checked yet: a value, a list, or "auto".
    """

    budget: Mapping[str, Any]
    workers: WorkerRange | None
    space: Mapping[str, Any]


def read_changes(given: Mapping[str, Any]) -> Changes:
    """The changes that values by key describe: `budget.NAME`, `workers`, `space.NAME`.

    Raises:
        UsageError: a key or the value of one is wrong.
    """
    budget: dict[str, Any] = {}
    space: dict[str, Any] = {}
    workers: WorkerRange | None = None
    for key, value in given.items():
        section, _, name = key.partition(".")
        if key == "workers":
            workers = read_workers(value)
        elif section == "budget" and name in LIMITS:
            budget[name] = None if value is None else LIMITS[name].read(key, value)
        elif section == "space" and name:
            space[name] = value
        else:
            known = ["workers", *(f"budget.{one}" for one in LIMITS), "space.NAME"]
            raise UsageError(f"{key!r} cannot be set: {nearest(key, known)}")
    return Changes(budget, workers, space)


def read_setting(text: str, space: Space) -> tuple[str, Value]:
    """The parameter and its value that `KEY=VALUE` names.

    Raises:
        UsageError: the text is malformed, the parameter is unknown, or it cannot have the value.
    """
    name, equals, raw = text.partition("=")
    if not equals or not raw:
        raise UsageError(f"a setting is KEY=VALUE, got {text!r}")
    return name, known_parameter(space, name).accept(raw, text=True)


def limit_of(space: Space, name: str, value: Any) -> Limit:
    """The limit that a value, a range `(low, high)`, or a list of choices says in Python.

    Raises:
        UsageError: the parameter is unknown, or it cannot have a value.
    """
    parameter = known_parameter(space, name)
    value = plain(value)
    several = isinstance(value, tuple) and not parameter.legal(value)
    values = list(value) if several else [value]
    values = [parameter.accept(one) for one in values]
    if isinstance(parameter, Choice):
        return Limit(tuple(values))
    if len(values) > 2 or values[0] > values[-1]:
        raise UsageError(f"the range of {name} is [LOW, HIGH], got {show(value)}")
    return Limit(low=values[0], high=values[-1])


def known_parameter(space: Space, name: str) -> Parameter:
    """The parameter of a name; raises UsageError if the sweep does not tune it."""
    if name not in space.parameters:
        raise UsageError(
            f"the sweep does not tune {name!r}: {nearest(name, list(space.parameters))}"
        )
    return space.parameters[name]
