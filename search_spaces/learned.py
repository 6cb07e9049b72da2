"""A space learned from what trials asked for while they ran: ranges, conditions, constraints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .change import joined_range
from .parameters import Choice, NumberParameter, Parameter, Params, Value, parameter_from_dict
from .space import Space

MAX_VALUES: Final = 100  # of a number on which a condition may depend
TOLERANCE: Final = 1e-9  # of a bound that equals another value
_BESIDE: Final = ("type", "name", "default", "line")  # the domain


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
    domains = one.domain(), other.domain()
    alike = all(
        len({repr(d.get(key)) for d in domains}) == 1 for key in ("log", "choices", "ordered")
    )
    return one.kind == other.kind and alike


def is_same(known: Parameter, asked: Mapping[str, Any]) -> bool:
    """Whether a range that was asked for is the known one."""
    domain = {key: value for key, value in asked.items() if key not in _BESIDE}
    return known.kind == asked["type"] and known.domain() == domain


def explains(space: Space, trial: Asks) -> bool:
    """Whether the space says what the trial asked for, so that nothing is learned from it."""
    names = trial.asked.keys()
    if not names <= space.names or not space.satisfied(trial.params):
        return False
    active = set(space.active(trial.params))
    return (names == active if trial.whole else names <= active) and all(
        is_same(space.parameters[name], asked) for name, asked in trial.asked.items()
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
            trials_before = asked.setdefault(name, [])
            if not trials_before or data != trials_before[-1].asked[name]:
                wanted = parameter_of(data)
                ranges[name] = _widened(ranges.get(name, wanted), wanted)
            trials_before.append(trial)
    found: dict[str, Parameter] = {}
    for name, parameter in ranges.items():
        others = [trial for trial in known if trial.whole and name not in trial.asked]
        when = _condition(found.values(), asked[name], others)
        found[name] = parameter_from_dict({**parameter.to_dict(), "when": when or None})
    rules = {name: _bounds(name, asked[name], found) for name in found}
    moved = [name for name, few in rules.items() if few is None]
    texts = [text for few in rules.values() for text in few or ()]
    return Space(*found.values(), constraints=texts), moved


def _widened(before: Parameter, wanted: Parameter) -> Parameter:
    """The range with the values of both, if they are of one kind."""
    if not isinstance(before, NumberParameter) or not isinstance(wanted, NumberParameter):
        return before
    if before.domain() == wanted.domain():
        return before
    return parameter_from_dict({**before.to_dict(), **joined_range(before, wanted)})


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
    if parent.name not in trial.asked:
        return bool(parent.when)
    return trial.params[parent.name] not in values


def _activating(parent: Parameter, asking: Sequence[Asks], others: Sequence[Asks]) -> list[Value]:
    """The parent's values in `asking`; of numbers on one side of all others, also those beyond."""
    values: list[Any] = [trial.params[parent.name] for trial in asking]
    without: list[Any] = [
        trial.params[parent.name] for trial in others if parent.name in trial.asked
    ]
    low = high = None
    if not isinstance(parent, Choice) and without:
        low = min(values) if min(values) > max(without) else None
        high = max(values) if max(values) < min(without) else None
    return [
        value
        for value in parent.values()
        if value in values
        or (low is not None and value >= low)
        or (high is not None and value <= high)
    ]


def _bounds(
    name: str, asking: Sequence[Asks], parameters: Mapping[str, Parameter]
) -> list[str] | None:
    """Constraints that say the bounds of a parameter; None if there are none that do."""
    found: list[str] = []
    for bound, sign in (("low", ">="), ("high", "<=")):
        ends = [trial.asked[name].get(bound) for trial in asking]
        if len(set(ends)) < 2:
            continue
        rule = next(
            filter(None, (_rule(one, ends, asking) for one in parameters if one != name)), ""
        )
        if not rule:
            return None
        found.append(f"{name} {sign} {rule}")
    return found


def _rule(other: str, ends: Sequence[Any], asking: Sequence[Asks]) -> str:
    """The bound as another value and a constant; "" if it is not that in each trial."""
    values: list[Any] = [trial.params.get(other) for trial in asking]
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        return ""
    gaps = [end - value for end, value in zip(ends, values, strict=True)]
    scale = max(map(abs, [*ends, *values]))
    if max(gaps) - min(gaps) > TOLERANCE * scale:
        return ""
    return f"{other} + {gaps[0]!r}" if abs(gaps[0]) > TOLERANCE * scale else other
