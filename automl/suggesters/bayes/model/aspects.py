"""The parameters that affect a metric, by its aspects: quality, speed and memory.

Goals and constraints have the aspects of their metrics. A parameter says which it `affects`.
"""

from typing import Final

from search_spaces import Space

QUALITY: Final = frozenset({"quality"})
SPEED: Final = frozenset({"speed"})
MEMORY: Final = frozenset({"memory"})
ALL: Final = QUALITY | SPEED | MEMORY
# The aspects that cause a kind of failure; all aspects for other kinds.
FAILURES: Final = {"out_of_memory": MEMORY, "timeout": SPEED, "non_finite": QUALITY}


def parameters(space: Space, aspects: frozenset[str]) -> tuple[str, ...]:
    """Names of the parameters that affect one of the aspects, and of their parents.

    All parameters if none affects them.
    """
    wanted = {name for name, p in space.parameters.items() if p.affects & aspects}
    for name in reversed(space.parameters):  # children before parents
        if name in wanted:
            wanted.update(space.parameters[name].when)
    return tuple(name for name in space.parameters if name in wanted) or tuple(space.parameters)
