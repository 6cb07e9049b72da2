"""Search spaces: parameters, conditions, constraints, knobs. Part of automl-sweep."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import AutomlError, SpaceError, UsageError, no_attribute

if TYPE_CHECKING:
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

# Imported when they are first asked for: a worker needs no spaces, and NumPy takes 0.1 s.
_LAZY = {
    "Choice": "parameters",
    "Float": "parameters",
    "Int": "parameters",
    "Parameter": "parameters",
    "Space": "space",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        no_attribute(f"module {__name__!r}", name, __all__)
    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value
