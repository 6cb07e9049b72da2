"""The graph of conditions between parameters: order, validation, and the number of configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import SpaceError
from .parameters import Choice, Float, Parameter, Value
from .plugins import nearest

MAX_STEPS = 20_000
MAX_ENTANGLED = 100

Parts = dict[str, frozenset[str]]


def parents_first(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The same parameters, each after its parents, otherwise in the order given.

    Raises:
        SpaceError: a parent is unknown, or conditions form a cycle; the message spells the cycle out.
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
    """Place a parameter after its ancestors, depth first without recursion: chains may be long."""
    path = [name]
    while path:
        parameter = parameters[path[-1]]
        waiting = next((parent for parent in parameter.when if parent not in placed), None)
        if waiting is None:
            placed[path.pop()] = parameter
        elif waiting in path:
            cycle = [*path[path.index(waiting) :], waiting]
            raise SpaceError(
                f"conditions must not form a cycle, got {' -> '.join(cycle)}; drop one of these whens"
            )
        else:
            path.append(waiting)


def with_ancestors(parameters: Mapping[str, Parameter], names: Iterable[str]) -> set[str]:
    """These names and those of all of their parents, grandparents and so on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(parameters[name].when)
    return found


def check_conditions(parameters: Mapping[str, Parameter]) -> None:
    """Raise SpaceError where a condition names a value that its parent cannot take."""
    for name, parameter in parameters.items():
        for parent_name, values in parameter.when.items():
            parent = parameters[parent_name]
            if isinstance(parent, Float):
                raise SpaceError(
                    f"when of {name!r} must name a Choice or an Int, {parent_name!r} is a Float: no single value of "
                    f"it would ever be hit"
                )
            for value in values:
                _check_value(name, parent, value)


def _check_value(name: str, parent: Parameter, value: Value) -> None:
    try:
        parent.check(value)
    except SpaceError as error:
        hint = ""
        if isinstance(parent, Choice) and isinstance(value, str):
            hint = f" ({nearest(value, [c for c in parent.choices if isinstance(c, str)])})"
        raise SpaceError(
            f"when of {name!r} names a value that {parent.name!r} cannot take: {error}{hint}"
        ) from None


class _Counter:
    """Counts by deciding one parent at a time; what falls apart is counted apart and multiplied.

    Attributes:
        weights: for each parent and each of its values that a condition names, how many configurations of what was
            folded into it go with that value.
        rest: for each parameter, how many values no condition names.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.weights: dict[str, dict[Value, int]] = {name: {} for name in parameters}
        for parameter in parameters.values():
            for parent, values in parameter.when.items():
                self.weights[parent].update(dict.fromkeys(values, 1))
        self.rest = {
            name: (p.size or 0) - len(self.weights[name]) for name, p in parameters.items()
        }
        self.steps = 0

    def total(self, name: str) -> int:
        """Configurations of a parameter and of what was folded into it."""
        return sum(self.weights[name].values()) + self.rest[name]

    def fold(self) -> Parts:
        """Fold every leaf of a single parent into that parent, from the ends of trees upwards; what is left."""
        left = {name: frozenset(parameter.when) for name, parameter in self.parameters.items()}
        for name in reversed(list(self.parameters)):
            if len(left[name]) == 1 and not any(name in parents for parents in left.values()):
                (parent,) = left.pop(name)
                for value in self.parameters[name].when[parent]:
                    self.weights[parent][value] *= self.total(name)
        return left

    def count(self, left: Parts) -> int | None:
        """Configurations of these parameters, each given with its parents that are not decided yet."""
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
        """Which children the values of `root` switch on, and how many configurations go with that."""
        classes: dict[frozenset[str], int] = {frozenset(): self.rest[root]}
        for value, weight in self.weights[root].items():
            on = frozenset(
                child for child in children if value in self.parameters[child].when[root]
            )
            classes[on] = classes.get(on, 0) + weight
        return classes


def _without(part: Parts, root: str, off: list[str]) -> Parts:
    """What is left once `root` is decided and the children `off`, with all below them, are gone."""
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
    links: dict[str, set[str]] = {name: set() for name in open_parents}
    for name, parents in open_parents.items():
        for parent in parents:
            links[name].add(parent)
            links[parent].add(name)
    parts: list[Parts] = []
    seen: set[str] = set()
    for start in open_parents:
        if start in seen:
            continue
        seen.add(start)
        stack, part = [start], {}
        while stack:
            name = stack.pop()
            part[name] = open_parents[name]
            stack.extend(links[name] - seen)
            seen |= links[name]
        parts.append(part)
    return parts


def count_configurations(parameters: Mapping[str, Parameter]) -> int | None:
    """Number of configurations, constraints left aside.

    None where a parameter is continuous, or where counting would take too long.
    """
    if any(parameter.size is None for parameter in parameters.values()):
        return None
    counter = _Counter(parameters)
    return counter.count(counter.fold())
