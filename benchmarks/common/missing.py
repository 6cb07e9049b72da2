"""Measures what no stored row says yet."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from . import store


class Named(Protocol):
    """A problem."""

    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)


def missing(
    options: argparse.Namespace,
    listed: Sequence[P],
    keys: Sequence[str],
    code: Callable[[str], str],
) -> Iterator[tuple[str, P, int]]:
    """Contestant, problem and seed of each run without a row, seed by seed.

    So an interrupted measurement is balanced.

    Args:
        options: `rows` (the file), `contestants`, `seeds` and `minutes`, after which no run begins.
        keys: the fields of a row that name problem, contestant, seed and code.
        code: the code of a contestant; rows of other code do not count.
    """
    known = store.load(options.rows, *keys)
    started = time.perf_counter()
    for seed in range(options.seeds):
        for problem in listed:
            for name in options.contestants:
                if (problem.name, name, seed, code(name)) in known:
                    continue
                if time.perf_counter() - started > 60 * options.minutes:
                    return
                yield name, problem, seed
