"""Runs trials in processes of this machine, without Ray: `LocalDispatcher`."""

from .dispatcher import LocalDispatcher

__all__ = ["LocalDispatcher"]
