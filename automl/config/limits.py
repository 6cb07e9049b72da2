"""Values and limits as people type them: `KEY=VALUE`, `KEY=LOW..HIGH`, `KEY=[VALUE,VALUE]`."""

import re
from typing import Any, Final

from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Int, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest
from search_spaces.validation import plain

from .scalars import plain_scalar

_SEPARATOR: Final = re.compile(r",(?![^\[]*\])")  # a comma outside of brackets


def read_limit(text: str, space: Space) -> tuple[str, Limit]:
    """The parameter and its limit that `KEY=VALUE`, `KEY=LOW..HIGH` or `KEY=[VALUE,...]` name.

    Raises:
        UsageError: the text is malformed, the parameter is unknown, or it cannot have a value.
    """
    parameter, raw = _split(text, space, "a limit is KEY=VALUE, KEY=LOW..HIGH or KEY=[VALUE,VALUE]")
    if raw.startswith("[") and raw.endswith("]") and _named(parameter, raw) is None:
        parts = _SEPARATOR.split(raw[1:-1])
    else:
        parts = raw.split("..")
    values = [_value(parameter, part.strip()) for part in parts]
    return parameter.name, _limit(parameter, values, text)


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
    for one in values:
        parameter.check(one)
    if isinstance(parameter, Choice):
        return Limit(tuple(map(parameter.canonical, values)))
    return _limit(parameter, values, f"{name}={value!r}")


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
    if isinstance(parameter, Int) and isinstance(value, float) and value.is_integer():
        value = int(value)
    parameter.check(value)
    return parameter.canonical(value)


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


def _limit(parameter: Parameter, values: list[Any], text: str) -> Limit:
    if isinstance(parameter, Choice):
        if ".." in text and not text.endswith("]"):
            low, high = sorted(parameter.index(value) for value in (values[0], values[-1]))
            return Limit(parameter.choices[low : high + 1])
        return Limit(tuple(choice for choice in parameter.choices if choice in values))
    if len(values) > 2 or (len(values) == 2 and values[0] > values[1]):
        raise UsageError(f"the range of a number is {parameter.name}=LOW..HIGH, got {text!r}")
    return Limit(low=values[0], high=values[-1])
