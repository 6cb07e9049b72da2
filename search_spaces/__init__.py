"""What may be tuned: parameters, conditions, constraints, knobs. Imports nothing else of this project."""

from __future__ import annotations

from .errors import AutomlError, SpaceError, UsageError
from .parameters import Choice, Float, Int, Parameter
from .space import Space

__all__ = [
    "AutomlError",
    "Choice",
    "Float",
    "Int",
    "Parameter",
    "Space",
    "SpaceError",
    "UsageError",
]
