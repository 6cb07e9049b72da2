"""The graph of conditions between parameters: order, validation, and the number of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import SpaceError
from .parameters import Choice, Float, Int, Parameter, Value
from .plugins import nearest

MAX_STEPS = 20_000


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
            raise SpaceError(f"conditions must not form a cycle, got {' -> '.join(cycle)}; drop one of these whens")
        else:
            path.append(waiting)


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
        raise SpaceError(f"when of {name!r} names a value that {parent.name!r} cannot take: {error}{hint}") from None


@dataclass
class _Counter:
    """Counts by conditioning on one parent at a time; what falls apart is counted apart and multiplied."""

    parameters: Mapping[str, Parameter]
    steps: int = 0
    known: dict[frozenset[tuple[str, frozenset[str]]], int | None] = field(default_factory=dict)

    def count(self, open_parents: dict[str, frozenset[str]]) -> int | None:
        """Configurations of these parameters, each given with the parents that are not decided yet."""
        total = 1
        for part in _components(open_parents):
            found = self._component(part)
            if found is None:
                return None
            total *= found
        return total

    def _component(self, part: dict[str, frozenset[str]]) -> int | None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            return None
        if len(part) == 1:
            return self.parameters[next(iter(part))].size
        key = frozenset(part.items())
        if key not in self.known:
            self.known[key] = self._split(part)
        return self.known[key]

    def _split(self, part: dict[str, frozenset[str]]) -> int | None:
        children: dict[str, list[str]] = {}
        for name, parents in part.items():
            for parent in parents:
                children.setdefault(parent, []).append(name)
        roots = [name for name in part if not part[name] and name in children]
        root = max(roots, key=lambda name: len(children[name]))
        total = 0
        for on, multiplicity in self._classes(root, children[root]).items():
            rest = _without(part, root, [child for child in children[root] if child not in on])
            found = self.count(rest)
            if found is None:
                return None
            total += multiplicity * found
        return total

    def _classes(self, root: str, children: list[str]) -> dict[frozenset[str], int]:
        """Which children the values of `root` switch on, and how many values do so."""
        wanted = {child: frozenset(self.parameters[child].when[root]) for child in children}
        named = frozenset().union(*wanted.values())
        classes: dict[frozenset[str], int] = {}
        for value in named:
            on = frozenset(child for child in children if value in wanted[child])
            classes[on] = classes.get(on, 0) + 1
        size = self.parameters[root].size or 0
        if size > len(named):
            classes[frozenset()] = classes.get(frozenset(), 0) + size - len(named)
        return classes


def _without(part: dict[str, frozenset[str]], root: str, off: list[str]) -> dict[str, frozenset[str]]:
    """What is left once `root` is decided and the children `off`, with all below them, are gone."""
    gone = set(off)
    while True:
        more = {name for name, parents in part.items() if name not in gone and parents & gone}
        if not more:
            break
        gone |= more
    return {name: parents - {root} for name, parents in part.items() if name != root and name not in gone}


def _components(open_parents: dict[str, frozenset[str]]) -> list[dict[str, frozenset[str]]]:
    links: dict[str, set[str]] = {name: set() for name in open_parents}
    for name, parents in open_parents.items():
        for parent in parents:
            links[name].add(parent)
            links[parent].add(name)
    parts: list[dict[str, frozenset[str]]] = []
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

    None where a parameter that can become active is continuous, or where counting would take too long.
    """
    if any(p.size is None for p in parameters.values() if isinstance(p, Float | Int | Choice)):
        return None
    counter = _Counter(parameters)
    return counter.count({name: frozenset(parameter.when) for name, parameter in parameters.items()})
