"""Ready-made parameters, a knob a file; `KNOBS` finds them by their file's name."""

from __future__ import annotations

from search_spaces.plugins import Registry

from .base import Dropped, Knob

KNOBS: Registry[Knob] = Registry(
    "knob", "search_spaces.knobs", "search_spaces.knobs", "search_spaces.knobs.base:Knob"
)

__all__ = ["KNOBS", "Dropped", "Knob"]
