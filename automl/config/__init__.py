"""The configuration of a sweep: strict YAML with overrides, every error told at once with its line."""

from __future__ import annotations

from .loading import Config, load
from .nodes import shown
from .overrides import Override
from .resolution import Dropped

__all__ = ["Config", "Dropped", "Override", "load", "shown"]
