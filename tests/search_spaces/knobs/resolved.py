"""Short ways to the parameters of a knob."""

from __future__ import annotations

from typing import Any

from automl.conformance.knobs import CPU
from search_spaces import Choice
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.knobs.base import KnobSpace
from search_spaces.parameters import Parameter


def resolve(name: str, hardware: Hardware = CPU, **options: Any) -> KnobSpace:
    return KNOBS.get(name)().resolve(hardware, options)


def by_name(declared: KnobSpace) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in declared.parameters}


def choices(declared: KnobSpace, name: str) -> list[Any]:
    parameter = by_name(declared)[name]
    assert isinstance(parameter, Choice)
    return list(parameter.choices)
