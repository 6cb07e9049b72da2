"""Trials on a virtual clock: `SimulatedDispatcher`."""

from .dispatcher import Fault, SimulatedDispatcher

__all__ = ["Fault", "SimulatedDispatcher"]
