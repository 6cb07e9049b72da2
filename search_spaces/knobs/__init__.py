"""Ready-made parameters; `KNOBS` finds them in the table, by the names of files, or installed."""

from search_spaces.plugins import Registry

from .base import DroppedValue, Knob, Option
from .table import TABLE

KNOBS: Registry[Knob] = Registry(
    "knob",
    "search_spaces.knobs",
    "search_spaces.knobs",
    "search_spaces.knobs.base:Knob",
    others=("table",),
    rows=TABLE,
)

__all__ = ["KNOBS", "DroppedValue", "Knob", "Option"]
