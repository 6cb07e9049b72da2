"""How many ranks a trial of a user's function or command has: a number, or a parameter."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from automl.errors import UsageError
from search_spaces import Choice, Int, Space
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.parallelism import RANKS as RANKS_OPTION
from search_spaces.plugins import nearest
from workers.parallel import STRATEGIES

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


def follow_strategy(spec: SweepSpec, slots: int) -> tuple[SweepSpec, str]:
    """The spec with as many ranks as the strategies of its space can use.

    If a function's or a command's space has the knob `parallelism` and the user says no ranks, the
    parameter `ranks` is added: powers of two within the slots.

    Args:
        slots: of the sweep.

    Returns:
        The spec, and a line for a person about strategies that have no room; "" for none.

    Raises:
        UsageError: no strategy has room.
    """
    space = spec.space
    strategy = space.parameters.get(PARALLELISM.name)
    known = isinstance(strategy, Choice) and {*strategy.choices} <= {*STRATEGIES.names()}
    if spec.workload is not None or spec.ranks != 1 or not known:
        return spec, ""
    assert isinstance(strategy, Choice)
    several = [name for name in strategy.choices if name != PARALLELISM.unset]
    if RANKS_OPTION.name in space.parameters or not several:
        return (replace(spec, ranks=RANKS_OPTION.name) if several else spec), ""
    if slots > 1:
        counts = [2**power for power in range(1, slots.bit_length())]
        ranks = Choice(
            RANKS_OPTION.name,
            counts,
            ordered=True,
            default=counts[0],
            affects=set(RANKS_OPTION.affects),
            when={PARALLELISM.name: several},
        )
        wider = Space(*space.parameters.values(), ranks, constraints=space.constraints)
        return replace(spec, space=wider, ranks=RANKS_OPTION.name), ""
    if PARALLELISM.unset not in strategy.choices:
        raise UsageError(f"parallelism {several[0]} needs 2 slots, there is 1: ask for workers=2")
    alone = Choice(strategy.name, [PARALLELISM.unset], affects=set(strategy.affects))
    others = {**space.parameters, strategy.name: alone}
    line = f"parallelism: {', '.join(map(str, several))} left out, they need 2 slots and there is 1"
    narrower = Space(*others.values(), constraints=space.constraints)
    return replace(spec, space=narrower), line


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
