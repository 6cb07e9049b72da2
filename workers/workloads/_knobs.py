"""Making a workload's space out of knobs and parameters of its own."""

from collections.abc import Sequence
from typing import Any

from search_spaces import Parameter, Space
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS, DroppedValue
from search_spaces.knobs.base import KnobSpace
from workers.workload import Trainable, Workload

Options = dict[str, dict[str, Any]]  # adjustments of knobs, by the names of the knobs


def space_of(
    workload: type[Workload],
    hardware: Hardware,
    own: Sequence[Parameter],
    knobs: Options,
    constraints: Sequence[str] = (),
) -> Space:
    """The space of a workload on this hardware.

    Args:
        workload: whose `defaults` are those of the knobs' parameters.
        hardware: of this machine.
        own: parameters of the workload itself.
        knobs: their adjustments.
        constraints: between parameters; one is left out if this hardware lacks a parameter of it.
    """
    found = _resolved(workload, hardware, knobs)
    parameters = [*own, *(parameter for one in found for parameter in one.parameters)]
    names = {parameter.name for parameter in parameters}
    kept = [text for text in constraints if names.issuperset(Expression(text).names)]
    return Space(
        *parameters, constraints=(*(text for one in found for text in one.constraints), *kept)
    )


def dropped_of(workload: type[Workload], hardware: Hardware, knobs: Options) -> list[DroppedValue]:
    """The values that the knobs leave out on this hardware, each with the reason."""
    return [value for one in _resolved(workload, hardware, knobs) for value in one.dropped]


def _resolved(workload: type[Workload], hardware: Hardware, knobs: Options) -> list[KnobSpace]:
    """The knobs on this hardware; automatic ones are added if the trainer trains the workload."""
    added: Options = {n: {} for n in KNOBS.names() if n not in knobs and KNOBS.get(n).automatic}
    found = []
    for name, adjustments in {
        **knobs,
        **(added if issubclass(workload, Trainable) else {}),
    }.items():
        general: dict[str, Any] = {"defaults": workload.defaults}
        if name == "parallelism" and "strategies" not in adjustments:
            from workers.parallel import requirements

            general["strategies"] = requirements()
        found.append(KNOBS.get(name)().resolve(hardware, {**general, **adjustments}))
    return found
