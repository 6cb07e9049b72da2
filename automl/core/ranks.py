"""How many ranks a trial of a user's function or command has: a number, or a parameter."""

from collections.abc import Mapping
from typing import Any

from automl.errors import UsageError
from search_spaces import Choice, Int, Space
from search_spaces.plugins import nearest

from .arguments import shown
from .spec import RANKS, SweepSpec

Ranks = int | str


def ranks_of(ranks: Ranks, params: Mapping[str, Any]) -> int:
    """The ranks of a configuration; 1 if the parameter that says how many is not active."""
    return int(params.get(ranks, 1)) if isinstance(ranks, str) else ranks


def max_ranks(spec: SweepSpec) -> int:
    """The most ranks that a trial may have.

    Raises:
        UsageError: `ranks` names no parameter whose values are whole numbers of at least 1, or the
            sweep runs a workload, whose ranks are options of its own.
    """
    ranks = RANKS.read("ranks", spec.ranks)
    if spec.workload is not None and ranks != 1:
        raise UsageError(
            f"ranks of a sweep are for your own objective, and this one runs the workload "
            f"{spec.workload!r}: put `ranks` in its space or under `fixed`"
        )
    return _most_of(ranks, spec.known_space) if isinstance(ranks, str) else ranks


def check_room(spec: SweepSpec, slots: int) -> None:
    """Raise UsageError if a trial may have more ranks than there are slots."""
    if (most := max_ranks(spec)) > slots and spec.workload is None:
        what = f"parameter {spec.ranks!r} can be" if isinstance(spec.ranks, str) else "ranks is"
        raise UsageError(
            f"each rank of a trial takes a slot: {what} {most}, and there are {slots} slots. "
            f"Ask for fewer ranks, or for workers={most}"
        )


def _most_of(name: str, space: Space) -> int:
    parameter = space.parameters.get(name)
    if parameter is None:
        known = nearest(name, sorted(space.parameters))
        raise UsageError(f"ranks must be a number or a parameter, got {name!r}; {known}")
    values: list[Any] = []
    if isinstance(parameter, Int):
        values = [parameter.low, parameter.high]
    elif isinstance(parameter, Choice):
        values = list(parameter.values())
    wrong = [value for value in values if type(value) is not int or value < 1]
    if not values or wrong:
        got = shown(wrong[0]) if wrong else repr(parameter)
        raise UsageError(
            f"parameter {name!r} is the number of ranks: its values must be whole numbers of at "
            f"least 1, got {got}"
        )
    return int(max(values))
