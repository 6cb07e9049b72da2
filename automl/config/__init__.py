"""Reads the configuration of a sweep: strict YAML with overrides; reports all errors at once."""

from .loading import Config, Override, load

__all__ = ["Config", "Override", "load"]
