"""Runs trials on Ray: `RayDispatcher`."""

from .dispatcher import RayDispatcher

__all__ = ["RayDispatcher"]
