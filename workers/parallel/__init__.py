"""Parallelism strategies, one a file, and the few facts about them that need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UsageError
from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Strategy

STRATEGIES: Registry[Strategy] = Registry(
    "parallelism",
    "workers.parallel.strategies",
    "automl.strategies",
    "workers.parallel.base:Strategy",
)


def num_ranks(params: Mapping[str, Any], fixed: Mapping[str, Any]) -> int:
    """How many processes a configuration takes: `ranks` (2 where it is not given), and 1 under `single`.

    Raises:
        UsageError: `ranks` is no positive whole number.
    """
    options = {**fixed, **params}
    if options.get("parallelism", "single") == "single":
        return 1
    ranks = options.get("ranks", 2)
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise UsageError(f"ranks must be a whole number of at least 1, got {ranks!r}")
    return ranks


def strategy_class(name: str) -> type[Strategy]:
    """The strategy of that name, written with `_` or `-`; UsageError where there is none."""
    return STRATEGIES.get(name.replace("_", "-"))


def requirements() -> dict[str, dict[str, Any]]:
    """What each strategy needs, as plain data: the input of the `parallelism` knob of `search_spaces`.

    For each name: `summary`; `min_ranks`; `constraints` on the parameters when it is chosen (expressions of
    `search_spaces`, such as "num_heads % ranks == 0"); `devices`; `backends`; and `plan`, the fields of the
    workload's `ParallelPlan` that must not be empty.
    """
    return {
        name.replace("-", "_"): STRATEGIES.get(name).needs.as_dict() for name in STRATEGIES.names()
    }
