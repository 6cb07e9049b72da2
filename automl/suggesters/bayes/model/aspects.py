"""Which parameters can reach a metric or a failure, by what they say they `affect`."""

from __future__ import annotations

from typing import Final

from search_spaces import Space

QUALITY: Final = frozenset({"quality"})
SPEED: Final = frozenset({"speed"})
MEMORY: Final = frozenset({"memory"})
ALL: Final = QUALITY | SPEED | MEMORY
FAILURES: Final = {"out_of_memory": MEMORY, "timeout": SPEED, "non_finite": QUALITY}


def of_failure(kind: str) -> frozenset[str]:
    """What brings about a kind of failure; anything where that cannot be told."""
    return FAILURES.get(kind, ALL)


def parameters(space: Space, measures: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that affect any of it, and of the parents that make these exist; all where none does."""
    wanted = {name for name, p in space.parameters.items() if p.affects & measures}
    for name in reversed(space.parameters):  # children before parents
        if name in wanted:
            wanted.update(space.parameters[name].when)
    return tuple(name for name in space.parameters if name in wanted) or tuple(space.parameters)
