"""The graph of conditions between parameters: order, validation, number of configurations."""

import json
from collections.abc import Hashable, Iterable, Mapping

from .errors import SpaceError
from .parameters import Choice, Float, Parameter, Value, parameter_from_dict
from .plugins import nearest
from .validation import identity

MAX_STEPS = 20_000
MAX_ENTANGLED = 100

Parts = dict[str, frozenset[str]]


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
    if isinstance(parent, Float):
        raise SpaceError(
            f"when of {name!r} must name a Choice or an Int, {parent.name!r} is a Float: "
            "a single real value is never drawn"
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


class _Counter:
    """Counts configurations by fixing one parent at a time; independent parts are multiplied.

    Attributes:
        weights: for each parent and each of its values that a condition uses, the number of
            configurations of the parameters folded into it.
        rest: for each parameter, the number of values that no condition uses.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.weights: dict[str, dict[Hashable, int]] = {name: {} for name in parameters}
        for parameter in parameters.values():
            for parent, values in parameter.when.items():
                self.weights[parent].update(dict.fromkeys(map(identity, values), 1))
        self.rest = {
            name: (p.size or 0) - len(self.weights[name]) for name, p in parameters.items()
        }
        self.steps = 0

    def total(self, name: str) -> int:
        """Number of configurations of a parameter and of the parameters folded into it."""
        return sum(self.weights[name].values()) + self.rest[name]

    def fold(self) -> Parts:
        """Fold each leaf with one parent into that parent, leaves first; returns the rest."""
        left = {name: frozenset(parameter.when) for name, parameter in self.parameters.items()}
        for name in reversed(list(self.parameters)):
            if len(left[name]) == 1 and not any(name in parents for parents in left.values()):
                (parent,) = left.pop(name)
                for value in map(identity, self.parameters[name].when[parent]):
                    self.weights[parent][value] *= self.total(name)
        return left

    def count(self, left: Parts) -> int | None:
        """Number of configurations of the given parameters; None if counting takes too long.

        Args:
            left: for each parameter, its parents that are not fixed yet.
        """
        total = 1
        for part in _components(left):
            self.steps += 1
            found = self.total(next(iter(part))) if len(part) == 1 else self._split(part)
            if found is None or self.steps > MAX_STEPS:
                return None
            total *= found
        return total

    def _split(self, part: Parts) -> int | None:
        if len(part) > MAX_ENTANGLED:
            return None
        children: dict[str, list[str]] = {}
        for name, parents in part.items():
            for parent in parents:
                children.setdefault(parent, []).append(name)
        roots = [name for name in part if not part[name] and name in children]
        root = max(roots, key=lambda name: len(children[name]))
        total = 0
        for on, weight in self._classes(root, children[root]).items():
            found = self.count(
                _without(part, root, [child for child in children[root] if child not in on])
            )
            if found is None:
                return None
            total += weight * found
        return total

    def _classes(self, root: str, children: list[str]) -> dict[frozenset[str], int]:
        """Sets of children that `root` can activate, with their numbers of configurations."""
        classes: dict[frozenset[str], int] = {frozenset(): self.rest[root]}
        for value, weight in self.weights[root].items():
            on = frozenset(
                child
                for child in children
                if value in map(identity, self.parameters[child].when[root])
            )
            classes[on] = classes.get(on, 0) + weight
        return classes


def _without(part: Parts, root: str, off: list[str]) -> Parts:
    """The graph after fixing `root` and removing the children `off` with all their descendants."""
    gone = set(off)
    while True:
        more = {name for name, parents in part.items() if name not in gone and parents & gone}
        if not more:
            break
        gone |= more
    return {
        name: parents - {root}
        for name, parents in part.items()
        if name != root and name not in gone
    }


def _components(open_parents: Parts) -> list[Parts]:
    """The connected parts of the graph."""
    groups: list[set[str]] = []
    for name, parents in open_parents.items():
        linked = [group for group in groups if name in group or parents & group]
        groups = [group for group in groups if group not in linked]
        groups.append({name, *parents}.union(*linked))
    return [{name: open_parents[name] for name in open_parents if name in g} for g in groups]


def count_configurations(parameters: Mapping[str, Parameter]) -> int | None:
    """Number of configurations, ignoring constraints.

    None if a parameter is continuous, or if counting would take too long.
    """
    if any(parameter.size is None for parameter in parameters.values()):
        return None
    counter = _Counter(parameters)
    return counter.count(counter.fold())
