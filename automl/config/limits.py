"""Values that people give a sweep: settings of parameters, and changes of what may change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from automl.core.resources import LIMITS, WorkerRange, read_workers
from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.validation import plain, show


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
