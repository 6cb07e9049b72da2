"""Spaces that change while earlier trials stay known: by a person, or by what trials ask for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from .values import among, check

MAX_VALUES: Final = 100  # of a number on which a condition may depend
_NEW_SWEEP: Final = "begin a new sweep that learns from this one (prior=sweep:NAME)"


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
    found = [*after.choices, *(v for v in before.choices if not among(v, after.choices))]
    numbers = [v for v in found if isinstance(v, int | float) and not isinstance(v, bool)]
    given = numbers[: len(after.choices)]
    rises = after.ordered and len(numbers) == len(found) and given == sorted(given)
    return [*sorted(numbers)] if rises else found


def joined_range(before: NumberParameter, after: NumberParameter) -> Mapping[str, Any]:
    """The bounds and the step of a range with the values of both."""
    low, high = min(before.low, after.low), max(before.high, after.high)
    check(
        low > 0 or not after.log,
        f"{after.name} cannot have a log scale, since earlier trials may lie at {low!r}; "
        "keep its linear scale",
    )
    cells = (before.low - after.low) / (after.step or 1)
    is_one_grid = after.step == before.step and abs(cells - round(cells)) <= TOLERANCE
    return {"low": low, "high": high, "step": after.step if is_one_grid else None}


class Asks(NamedTuple):
    """What one trial asked for.

    Args:
        params: the values that it got.
        asked: the range of each, as `parameter_of` reads it.
        whole: it has run to its end, so what it did not ask for does not belong to it.
    """

    params: Params
    asked: Mapping[str, Mapping[str, Any]]
    whole: bool


def parameter_of(asked: Mapping[str, Any]) -> Parameter:
    """The parameter that was asked for; its `line` is left out."""
    return parameter_from_dict({key: value for key, value in asked.items() if key != "line"})


def same_kind(one: Parameter, other: Parameter) -> bool:
    """Whether two ranges may belong to one parameter: numbers of one scale, or equal choices."""
    kept = ("log", "choices", "ordered")
    first, second = ([p.kind, *map(p.domain().get, kept)] for p in (one, other))
    return repr(first) == repr(second)


def explains(space: Space, trial: Asks) -> bool:
    """Whether the space says what the trial asked for, so that nothing is learned from it."""
    names = trial.asked.keys()
    active = set(space.active(trial.params))
    return (
        (names == active if trial.whole else names <= active)
        and space.satisfied(trial.params)
        and all(
            space.parameters[name].domain() == parameter_of(asked).domain()
            for name, asked in trial.asked.items()
        )
    )


def learned(trials: Iterable[Asks]) -> tuple[Space, list[str]]:
    """The smallest space with everything that trials asked for.

    A parameter is conditional if the values of earlier ones tell the trials that asked for it from
    those that ran to their end without. A bound that always equals another value, or differs from
    it by the same amount, becomes a constraint.

    Returns:
        The space, and the names whose ranges differ for another reason.
    """
    known = [trial for trial in trials if trial.asked]
    ranges: dict[str, Parameter] = {}
    asked: dict[str, list[Asks]] = {}
    for trial in known:
        for name, data in trial.asked.items():
            earlier = asked.setdefault(name, [])
            if not earlier or data != earlier[-1].asked[name]:
                wanted = parameter_of(data)
                before = ranges.setdefault(name, wanted)
                if (
                    isinstance(before, NumberParameter)
                    and isinstance(wanted, NumberParameter)
                    and before.domain() != wanted.domain()
                ):
                    ranges[name] = parameter_from_dict(
                        {**before.to_dict(), **joined_range(before, wanted)}
                    )
            earlier.append(trial)
    found: dict[str, Parameter] = {}
    for name, parameter in ranges.items():
        others = [trial for trial in known if trial.whole and name not in trial.asked]
        when = _condition(found.values(), asked[name], others)
        found[name] = parameter_from_dict({**parameter.to_dict(), "when": when or None})
    rules = {name: _bounds(name, asked[name], found) for name in found}
    texts = [text for few in rules.values() for text in few or ()]
    return Space(*found.values(), constraints=texts), [n for n, few in rules.items() if few is None]


def _condition(
    earlier: Iterable[Parameter], asking: Sequence[Asks], others: Sequence[Asks]
) -> dict[str, list[Value]]:
    """Values of earlier parameters that all trials in `asking` have and none of `others`."""
    names = set.intersection(*(set(trial.asked) for trial in asking))
    parents = {
        parent: _activating(parent, asking, others)
        for parent in earlier
        if parent.name in names and parent.size is not None and parent.size <= MAX_VALUES
    }
    found: dict[str, list[Value]] = {}
    while others:
        left = {
            parent.name: [trial for trial in others if not _excluded(parent, values, trial)]
            for parent, values in parents.items()
        }
        best = min(left, key=lambda name: len(left[name]), default="")
        if not best or len(left[best]) == len(others):
            return {}  # nothing that a condition can name tells them apart
        found[best] = next(v for parent, v in parents.items() if parent.name == best)
        others = left[best]
    return found


def _excluded(parent: Parameter, values: Sequence[Value], trial: Asks) -> bool:
    """Whether a condition on these values of the parent is false in a trial."""
    asked = parent.name in trial.asked
    return not among(trial.params[parent.name], values) if asked else bool(parent.when)


def _activating(parent: Parameter, asking: Sequence[Asks], others: Sequence[Asks]) -> list[Value]:
    """The parent's values in `asking`; of numbers on one side of all others, also those beyond."""
    values: list[Any] = [trial.params[parent.name] for trial in asking]
    without: list[Any] = [
        trial.params[parent.name] for trial in others if parent.name in trial.asked
    ]
    has_order = not isinstance(parent, Choice) and bool(without)
    above = has_order and min(values) > max(without)
    below = has_order and max(values) < min(without)
    return [
        value
        for value in parent.values()
        if among(value, values)
        or (above and value >= min(values))
        or (below and value <= max(values))
    ]


def _bounds(
    name: str, asking: Sequence[Asks], parameters: Mapping[str, Parameter]
) -> list[str] | None:
    """Constraints that say the bounds of a parameter; None if there are none that do."""
    found: list[str] = []
    for bound, sign in (("low", ">="), ("high", "<=")):
        ends = [trial.asked[name].get(bound) for trial in asking]
        if len(set(ends)) > 1:
            rules = [_rule(one, ends, asking) for one in parameters if one != name]
            if not any(rules):
                return None
            found.append(f"{name} {sign} {next(filter(None, rules))}")
    return found


def _rule(other: str, ends: Sequence[Any], asking: Sequence[Asks]) -> str:
    """The bound as another value and a constant; "" if it is not that in each trial."""
    values: list[Any] = [trial.params.get(other) for trial in asking]
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        return ""
    gaps = [end - value for end, value in zip(ends, values, strict=True)]
    slack = TOLERANCE * max(map(abs, [*ends, *values]))
    if max(gaps) - min(gaps) > slack:
        return ""
    return f"{other} + {gaps[0]!r}" if abs(gaps[0]) > slack else other
