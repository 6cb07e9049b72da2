"""The graph of conditions between parameters: order, validation, number of configurations."""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from .errors import SpaceError
from .parameters import Choice, Float, Parameter, Value, parameter_from_dict
from .plugins import nearest
from .validation import check, identity

MAX_STATES: Final = 5_000


def parents_first(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The same parameters, each after its parents; otherwise the order is kept.

    Raises:
        SpaceError: a parent is unknown, or conditions form a cycle (the message lists the cycle).
    """
    for name, parameter in parameters.items():
        for parent in parameter.when:
            if parent not in parameters:
                hint = nearest(parent, [n for n in parameters if n != name])
                raise SpaceError(f"when of {name!r} names the unknown parent {parent!r}: {hint}")
    placed: dict[str, Parameter] = {}
    for name in parameters:
        _place(name, parameters, placed)
    return placed


def _place(name: str, parameters: Mapping[str, Parameter], placed: dict[str, Parameter]) -> None:
    """Insert a parameter after its ancestors; iterative, because chains can be long."""
    path = [name]
    while path:
        parameter = parameters[path[-1]]
        waiting = next((parent for parent in parameter.when if parent not in placed), None)
        if waiting is None:
            placed[path.pop()] = parameter
        elif waiting in path:
            cycle = [*path[path.index(waiting) :], waiting]
            raise SpaceError(
                f"conditions must not form a cycle, got {' -> '.join(cycle)}; "
                "drop one of these conditions"
            )
        else:
            path.append(waiting)


def with_ancestors(parameters: Mapping[str, Parameter], names: Iterable[str]) -> set[str]:
    """The given names and the names of all their ancestors."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(parameters[name].when)
    return found


def with_own_conditions(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The same parameters; the values of their conditions are in the form of the parents.

    Raises:
        SpaceError: a condition uses a value that its parent cannot take.
    """
    found = {}
    for name, parameter in parameters.items():
        own = {
            parent: tuple(_own(name, parameters[parent], value) for value in values)
            for parent, values in parameter.when.items()
        }
        if json.dumps(own) != json.dumps(parameter.when):
            when = {parent: list(values) for parent, values in own.items()}
            parameter = parameter_from_dict({**parameter.to_dict(), "when": when})
        found[name] = parameter
    return found


def _own(name: str, parent: Parameter, value: Value) -> Value:
    check(
        not isinstance(parent, Float),
        f"when of {name!r} must name a Choice or an Int, {parent.name!r} is a Float: "
        "a single real value is never drawn",
    )
    try:
        return parent.accept(value)
    except SpaceError as error:
        hint = ""
        if isinstance(parent, Choice) and isinstance(value, str):
            hint = f" ({nearest(value, [c for c in parent.choices if isinstance(c, str)])})"
        raise SpaceError(
            f"when of {name!r} names a value that {parent.name!r} cannot take: {error}{hint}"
        ) from None


def count_configurations(parameters: Mapping[str, Parameter]) -> int | None:
    """Number of configurations, ignoring constraints.

    Goes through the parameters, parents first, and keeps for each set of later parameters that
    can no longer be active the number of configurations so far. Children come soon after their
    parents, so that few such sets are open.

    Returns:
        None if a parameter is continuous, or if there are more than `MAX_STATES` such sets.
    """
    states = {frozenset[str](): 1}
    conditional = {name: p for name, p in parameters.items() if p.when}
    for name, parameter in parents_first({**conditional, **parameters}).items():
        if parameter.size is None:
            return None
        wanted = {
            child: set(map(identity, p.when[name]))
            for child, p in parameters.items()
            if name in p.when
        }
        used = set[Hashable]().union(*wanted.values())
        children = frozenset(wanted)
        classes = Counter({children: parameter.size - len(used)})
        for value in used:
            off = frozenset(child for child in children if value not in wanted[child])
            classes[off] += 1
        after = Counter[frozenset[str]]()
        for off, number in states.items():
            if name in off:
                after[off - {name} | children] += number
                continue
            for more, values in classes.items():
                after[off | more] += number * values
        states = +after
        if len(states) > MAX_STATES:
            return None
    return sum(states.values())
