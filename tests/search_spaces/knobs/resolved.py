"""Knobs on three kinds of hardware, and short ways to their parameters."""

from __future__ import annotations

from typing import Any

from search_spaces import Choice, Space
from search_spaces.hardware import Gpu, Hardware
from search_spaces.knobs import KNOBS
from search_spaces.knobs.base import KnobSpace
from search_spaces.parameters import Parameter, parameter_from_dict

CPU = Hardware(2, 2**33, precisions=("fp32", "bf16", "fp16"), slow={"fp16": "emulated"})
OLD = Hardware(8, 2**34, (Gpu("T4", 2**34, (7, 5), False),), ("fp32", "fp16"), ("gloo", "nccl"))
NEW = Hardware(
    64,
    2**38,
    (Gpu("H200", 2**37, (9, 0), True),) * 4,
    ("fp32", "tf32", "bf16", "fp16"),
    ("gloo", "nccl"),
    rpc=False,
)


def resolve(name: str, hardware: Hardware = CPU, **options: Any) -> KnobSpace:
    return KNOBS.get(name)().resolve(hardware, options)


def by_name(declared: KnobSpace) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in declared.parameters}


def one_space(hardware: Hardware, *names: str) -> Space:
    """The space of some knobs; conditions name what their parents can be, as in a configuration."""
    declared = [KNOBS.get(name)().resolve(hardware) for name in names]
    found = {p.name: p for one in declared for p in one.parameters}
    parameters = []
    for parameter in found.values():
        left = {
            parent: [value for value in values if found[parent].legal(value)]
            for parent, values in parameter.when.items()
        }
        if all(left.values()):
            parameters.append(parameter_from_dict({**parameter.to_dict(), "when": left}))
    return Space(*parameters, constraints=[text for one in declared for text in one.constraints])


def choices(declared: KnobSpace, name: str) -> list[Any]:
    parameter = by_name(declared)[name]
    assert isinstance(parameter, Choice)
    return list(parameter.choices)
