"""Values that people give a sweep: settings of parameters, and changes of what may change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from automl.core.budget import LIMITS
from automl.core.worker_range import WorkerRange, read_workers
from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Int, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.validation import plain, show

from .scalars import plain_scalar


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
    parameter, raw = _split(text, space, "a setting is KEY=VALUE")
    return parameter.name, _value(parameter, raw)


def limit_of(space: Space, name: str, value: Any) -> Limit:
    """The limit that a value, a range `(low, high)`, or a list of choices says in Python.

    Raises:
        UsageError: the parameter is unknown, or it cannot have a value.
    """
    parameter = known_parameter(space, name)
    value = plain(value)
    several = isinstance(value, tuple) and not parameter.legal(value)
    values = list(value) if several else [value]
    if isinstance(parameter, Int):
        values = [_whole(one) for one in values]
    for one in values:
        parameter.check(one)
    if isinstance(parameter, Choice):
        return Limit(tuple(map(parameter.canonical, values)))
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


def _split(text: str, space: Space, rule: str) -> tuple[Parameter, str]:
    key, equals, raw = text.partition("=")
    if not equals or not raw:
        raise UsageError(f"{rule}, got {text!r}")
    return known_parameter(space, key), raw


def _value(parameter: Parameter, raw: str) -> Value:
    if (index := _named(parameter, raw)) is not None:
        return parameter.values()[index]  # type: ignore[no-any-return]
    try:
        value: Any = plain_scalar(raw)
    except ValueError as error:
        raise UsageError(f"{parameter.name}: {error}") from error
    value = _whole(value) if isinstance(parameter, Int) else value
    parameter.check(value)
    return parameter.canonical(value)


def _whole(value: Any) -> Any:
    """A whole number that was written like a float, such as 1e2, as an int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _named(parameter: Parameter, raw: str) -> int | None:
    """The index of the choice that a text names: by its Python or its YAML form."""
    if not isinstance(parameter, Choice):
        return None
    named = {str(choice): i for i, choice in enumerate(parameter.choices)}
    named |= {
        _form(c): i for i, c in enumerate(parameter.choices) if c is None or isinstance(c, tuple)
    }
    return named.get(raw, named.get(raw.replace(" ", "").replace("'", "").replace('"', "")))


def _form(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_form, value))}]"
    return "null" if value is None else str(value)
