"""Kinds of hardware, and short ways to the parameters of a knob."""

from __future__ import annotations

from typing import Any

from search_spaces import Choice
from search_spaces.hardware import Gpu, Hardware
from search_spaces.knobs import KNOBS
from search_spaces.knobs.base import KnobSpace
from search_spaces.parameters import Parameter

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


def choices(declared: KnobSpace, name: str) -> list[Any]:
    parameter = by_name(declared)[name]
    assert isinstance(parameter, Choice)
    return list(parameter.choices)
