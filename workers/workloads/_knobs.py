"""Making a workload's space out of ready-made knobs and parameters of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces import Space
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.parameters import Parameter


def space_of(
    hardware: Hardware,
    own: Sequence[Parameter],
    knobs: Mapping[str, Mapping[str, Any]],
    constraints: Sequence[str] = (),
) -> Space:
    """A space of parameters of the workload's own and of knobs with their options, on this hardware."""
    parameters, conditions = list(own), list(constraints)
    for name, options in knobs.items():
        declared = KNOBS.get(name)().resolve(hardware, options)
        parameters += declared.parameters
        conditions += declared.constraints
    return Space(*parameters, constraints=tuple(conditions))


def strategies(*names: str) -> dict[str, Any]:
    """What these parallelism strategies need, of those that there are."""
    from workers.parallel import requirements

    known = requirements()
    return {name: known[name] for name in names if name in known}
