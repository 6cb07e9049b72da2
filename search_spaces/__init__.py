"""Search spaces: parameters, conditions, constraints, knobs; independent of the other packages."""

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
