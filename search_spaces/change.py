"""A space that changes while the trials of the earlier one stay known."""

from collections.abc import Iterable, Mapping
from typing import Any

from .parameters import (
    TOLERANCE,
    Choice,
    NumberParameter,
    Parameter,
    Params,
    Value,
    parameter_from_dict,
)
from .space import Space
from .validation import check

_NEW_SWEEP = "begin a new sweep that learns from this one (prior=sweep:NAME)"


def joined(before: Space, after: Space, tried: Iterable[Params] = ()) -> Space:
    """The smallest space that has the configurations of both, for what is known of the first.

    A new parameter has its default in the configurations of the first space (`Space.complete`).

    Args:
        before: the space of the configurations that were tried.
        after: the space of those to come. It has every parameter of `before`, of the same type.
        tried: configurations of `before`.

    Raises:
        SpaceError: a parameter is missing or has another type, or it is new, active in a
            configuration that was tried, and has no default.
    """
    for name, parameter in before.parameters.items():
        check(
            name in after.parameters,
            f"{name} is gone from the space, and earlier trials have it; keep it and fix its "
            f"value (automl set SWEEP space.{name}=VALUE), or {_NEW_SWEEP}",
        )
        kind = after.parameters[name].kind
        check(
            kind == parameter.kind,
            f"{name} was of type {parameter.kind} and is now of type {kind}; "
            f"keep its type, or {_NEW_SWEEP}",
        )
    known = before.parameters
    parameters = [
        _joined(known[name], parameter, after) if name in known else parameter
        for name, parameter in after.parameters.items()
    ]
    kept = {str(constraint) for constraint in before.constraints}
    space = Space(*parameters, constraints=[c for c in after.constraints if str(c) in kept])
    for params in tried:
        for name in space.complete(params):
            check(
                name in params or space.parameters[name].has_default,
                f"{name} is new, and earlier trials had none: give it a default, "
                "which is the value that they count with",
            )
    return space


def changes(before: Space, after: Space) -> list[str]:
    """What has changed from one space to the next, a sentence each; empty if nothing has."""
    found = []
    for name, parameter in after.parameters.items():
        earlier = before.parameters.get(name)
        if earlier is None:
            count = f"; earlier trials count as {parameter.default!r}"
            found.append(f"{name} is new: {parameter!r}{count if parameter.has_default else ''}")
        elif parameter != earlier:
            found.append(f"{earlier!r} became {parameter!r}")
    found += [f"{name} was removed" for name in before.parameters if name not in after.parameters]
    old, new = ([str(c) for c in space.constraints] for space in (before, after))
    found += [f"constraint {text} was added" for text in new if text not in old]
    found += [f"constraint {text} was dropped" for text in old if text not in new]
    return found


def _joined(before: Parameter, after: Parameter, space: Space) -> Parameter:
    """A parameter with the values of both, and the default that earlier trials count with."""
    data = after.to_dict()
    if before.has_default:
        data["default"] = before.default
    if isinstance(before, Choice) and isinstance(after, Choice):
        data["choices"] = _merged(before, after)
    elif isinstance(before, NumberParameter) and isinstance(after, NumberParameter):
        data |= joined_range(before, after)
    when = {parent: list(values) for parent, values in after.when.items()}
    if set(before.when) == set(after.when):
        for parent, values in before.when.items():  # earlier values of a parent go on to count
            when[parent] += [v for v in values if not space.parameters[parent].legal(v)]
    return parameter_from_dict({**data, **({"when": when} if when else {})})


def _merged(before: Choice, after: Choice) -> list[Value]:
    found = [*after.choices, *(value for value in before.choices if value not in after.choices)]
    numbers = [v for v in found if isinstance(v, int | float) and not isinstance(v, bool)]
    if not after.ordered or len(numbers) < len(found):
        return found
    given = numbers[: len(after.choices)]
    return [*sorted(numbers)] if given == sorted(given) else found


def joined_range(before: NumberParameter, after: NumberParameter) -> Mapping[str, Any]:
    """The bounds and the step of a range with the values of both."""
    low, high = min(before.low, after.low), max(before.high, after.high)
    check(
        low > 0 or not after.log,
        f"{after.name} cannot have a log scale, since earlier trials may lie at {low!r}; "
        "keep its linear scale",
    )
    step = after.step if after.step == before.step else None
    cells = (before.low - after.low) / (step or 1)
    if abs(cells - round(cells)) > TOLERANCE:
        step = None  # the grids differ
    return {"low": low, "high": high, "step": step}
