"""Trials on a virtual clock: `SimulatedDispatcher`."""

from .dispatcher import SimulatedDispatcher

__all__ = ["SimulatedDispatcher"]
