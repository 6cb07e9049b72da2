"""Values and limits as people type them: `KEY=VALUE`, `KEY=LOW..HIGH`, `KEY=[VALUE,VALUE]`."""

from typing import Any

from automl.errors import UsageError
from automl.suggesters.domain import Limit
from search_spaces import Choice, Int, Space
from search_spaces.parameters import Parameter, Value
from search_spaces.plugins import nearest

from .scalars import plain_scalar


def read_limit(text: str, space: Space) -> tuple[str, Limit]:
    """The parameter and its limit that `KEY=VALUE`, `KEY=LOW..HIGH` or `KEY=[VALUE,...]` name.

    Raises:
        UsageError: the text is malformed, the parameter is unknown, or it cannot have a value.
    """
    parameter, raw = _split(text, space, "a limit is KEY=VALUE, KEY=LOW..HIGH or KEY=[VALUE,VALUE]")
    parts = raw[1:-1].split(",") if raw.startswith("[") and raw.endswith("]") else raw.split("..")
    values = [_value(parameter, part.strip()) for part in parts]
    return parameter.name, _limit(parameter, values, text)


def read_setting(text: str, space: Space) -> tuple[str, Value]:
    """The parameter and its value that `KEY=VALUE` names.

    Raises:
        UsageError: the text is malformed, the parameter is unknown, or it cannot have the value.
    """
    parameter, raw = _split(text, space, "a setting is KEY=VALUE")
    return parameter.name, _value(parameter, raw)


def _split(text: str, space: Space, rule: str) -> tuple[Parameter, str]:
    key, equals, raw = text.partition("=")
    if not equals or not raw:
        raise UsageError(f"{rule}, got {text!r}")
    if key not in space.parameters:
        raise UsageError(f"the sweep tunes no {key!r}: {nearest(key, list(space.parameters))}")
    return space.parameters[key], raw


def _value(parameter: Parameter, raw: str) -> Value:
    if isinstance(parameter, Choice):
        named = {str(choice): choice for choice in parameter.choices}
        if raw in named:
            return named[raw]
    try:
        value: Any = plain_scalar(raw)
    except ValueError as error:
        raise UsageError(f"{parameter.name}: {error}") from error
    if isinstance(parameter, Int) and isinstance(value, float) and value.is_integer():
        value = int(value)
    parameter.check(value)
    return parameter.canonical(value)


def _limit(parameter: Parameter, values: list[Any], text: str) -> Limit:
    if isinstance(parameter, Choice):
        if ".." in text and not text.endswith("]"):
            low, high = sorted(parameter.index(value) for value in (values[0], values[-1]))
            return Limit(parameter.choices[low : high + 1])
        return Limit(tuple(choice for choice in parameter.choices if choice in values))
    if len(values) > 2 or (len(values) == 2 and values[0] > values[1]):
        raise UsageError(f"the range of a number is {parameter.name}=LOW..HIGH, got {text!r}")
    return Limit(low=values[0], high=values[-1])
