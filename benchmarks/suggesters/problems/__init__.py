"""Every benchmark problem by name. Each file is a family with `problems() -> list[Problem]`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from benchmarks.suggesters.problems.base import (
    Kind,
    Metrics,
    Observation,
    Params,
    Problem,
)

__all__ = ["Kind", "Metrics", "Observation", "Params", "Problem", "load", "names"]


@functools.cache
def _all() -> dict[str, Problem]:
    found: dict[str, Problem] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        family = importlib.import_module(f"{__name__}.{module}")
        found |= {p.name: p for p in getattr(family, "problems", list)()}
    return found


def names(
    kind: Kind | None = None, tag: str | None = None, *, exam: bool | None = False
) -> list[str]:
    """Names of the problems of a kind, with a tag, or of all.

    Args:
        exam: True for those of the exam (`examine.py`), on which nothing is developed; None for
            those of the exam too.
    """
    return [
        name
        for name, problem in _all().items()
        if kind in (None, problem.kind)
        and (tag is None or tag in problem.tags)
        and exam in (None, "exam" in problem.tags)
    ]


def load(name: str) -> Problem:
    """The problem of that name.

    Raises:
        KeyError: there is none; the message lists the known names.
    """
    if name not in _all():
        raise KeyError(f"unknown problem {name!r}; known: {', '.join(_all())}")
    return _all()[name]
