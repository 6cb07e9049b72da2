"""Ready-made parameters, one knob a file; `KNOBS` finds them by the names of their files."""

from search_spaces.plugins import Registry

from .base import Knob
from .option import DroppedValue, Option

KNOBS: Registry[Knob] = Registry(
    "knob",
    "search_spaces.knobs",
    "search_spaces.knobs",
    "search_spaces.knobs.base:Knob",
    others=("option",),
)

__all__ = ["KNOBS", "DroppedValue", "Knob", "Option"]
