"""Measures what no stored row says yet."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from . import store

P = TypeVar("P")


def missing(
    options: argparse.Namespace,
    listed: Sequence[P],
    keys: Sequence[str],
    key: Callable[[str, P, int], tuple[Any, ...]],
) -> Iterator[tuple[str, P, int]]:
    """Contestant, problem and seed of each run without a row, seed by seed.

    So an interrupted measurement is balanced.

    Args:
        options: `rows` (the file), `contestants`, `seeds` and `minutes`, after which no run begins.
        keys: the fields of a row that tell the runs apart.
        key: their values for a contestant, a problem and a seed.
    """
    known = store.load(options.rows, *keys)
    started = time.perf_counter()
    for seed in range(options.seeds):
        for problem in listed:
            for name in options.contestants:
                if key(name, problem, seed) in known:
                    continue
                if time.perf_counter() - started > 60 * options.minutes:
                    return
                yield name, problem, seed
