"""A dispatcher without workers whose sweeps share the machine with others."""

from __future__ import annotations

from typing import ClassVar

from automl.dispatch.simulated import SimulatedDispatcher


class RealDispatcher(SimulatedDispatcher):
    """Its trials pass for real ones of this machine, so that their GPUs are locked."""

    estimates: ClassVar[bool] = True
