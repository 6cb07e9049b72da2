"""Reads the configuration of a sweep: strict YAML with overrides; reports all errors at once."""

from .loading import Config, load
from .overrides import Override
from .resolution import Exclusion

__all__ = ["Config", "Exclusion", "Override", "load"]
