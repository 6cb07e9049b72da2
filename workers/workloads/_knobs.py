"""Making a workload's space out of ready-made knobs and parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from search_spaces import Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS, Dropped
from search_spaces.parameters import Parameter

Options = dict[str, dict[str, Any]]  # of knobs, by their names


def space_of(
    hardware: Hardware, own: Sequence[Parameter], knobs: Options, constraints: Sequence[str] = ()
) -> Space:
    """A space of parameters of the workload's own and of knobs with their options, on this hardware.

    Args:
        constraints: between them; those that name what this hardware has no choice of are left out.
    """
    declared = [KNOBS.get(name)().resolve(hardware, options) for name, options in knobs.items()]
    parameters = [*own, *(parameter for one in declared for parameter in one.parameters)]
    names = {parameter.name for parameter in parameters}
    kept = [text for text in constraints if names.issuperset(Expression(text).names)]
    return Space(
        *parameters, constraints=(*(text for one in declared for text in one.constraints), *kept)
    )


def dropped_of(hardware: Hardware, knobs: Options) -> list[Dropped]:
    """What the knobs leave out on this hardware, and why."""
    return [
        gone
        for name, options in knobs.items()
        for gone in KNOBS.get(name)().dropped(hardware, options)
    ]


def strategies(*names: str) -> dict[str, Any]:
    """What these parallelism strategies need, of those that there are."""
    from workers.parallel import requirements

    known = requirements()
    return {name: known[name] for name in names if name in known}
