"""Parallelism strategies, one a file, and the facts about them that need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM, RANKS
from search_spaces.plugins import Registry

if TYPE_CHECKING:
    from .base import Strategy

STRATEGIES: Registry[Strategy] = Registry(
    "parallelism",
    "workers.parallel.strategies",
    "automl.strategies",
    "workers.parallel.base:Strategy",
    separator="_",
)


def num_ranks(params: Mapping[str, Any], fixed: Mapping[str, Any]) -> int:
    """The number of processes of a configuration: `ranks`, and 1 under `single`.

    Raises:
        UsageError: `ranks` is not a positive whole number.
    """
    options = {**fixed, **params}
    if PARALLELISM.value(options) == "single":
        return 1
    ranks = RANKS.value(options)
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise UsageError(f"ranks must be a whole number of at least 1, got {ranks!r}")
    return ranks


def ranks_together(params: Mapping[str, Any], fixed: Mapping[str, Any]) -> int:
    """How many consecutive ranks of a configuration must be on one node.

    Those of the mesh's tensor axis, which exchange data in every layer (Narayanan et al. 2021,
    https://arxiv.org/abs/2104.04473, take tensor parallelism within a node only). The first call
    for a strategy imports it, and torch.

    Raises:
        UsageError: the strategy cannot run on this many ranks.
    """
    ranks = num_ranks(params, fixed)
    if ranks == 1:
        return 1
    options = {**fixed, **params}
    return STRATEGIES.get(PARALLELISM.value(options)).degrees(ranks, options).get("tensor", 1)


def requirements() -> dict[str, dict[str, Any]]:
    """The fields of `StrategyNeeds` of each strategy, as plain data for the parallelism knob.

    `parameters` are the strategy's options that can be tuned, `on_request` their further values.
    """
    found = {}
    for name in STRATEGIES.names():
        kind = STRATEGIES.get(name)
        tuned = tuple(option.build().to_dict() for option in kind.options if option.choices)
        named = {option.name: option.on_request for option in kind.options if option.on_request}
        found[name] = {**asdict(kind.needs), "parameters": tuned, "on_request": named}
    return found
