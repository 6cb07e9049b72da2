"""The number format of training."""

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import PRECISIONS, Hardware

from .base import Knob, KnobSpace, present
from .option import Option

PRECISION = Option(
    "precision", "number format of forward and backward", "fp32", PRECISIONS, untuned=("fp64",)
)


class PrecisionKnob(Knob):
    """fp32, tf32 (matrix products with 10-bit mantissas), bf16, or fp16 with dynamic loss scaling.

    Formats that the hardware cannot run are dropped. A format that the hardware only emulates is
    dropped too, unless the adjustments ask for it by name.
    """

    name = "precision"
    summary = "number format of training"
    options = (PRECISION,)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        choices = PRECISION.wanted(adjustments)
        lacking = {name: hardware.lacks_precision(name) for name in PRECISIONS}
        reasons = {name: reason for name, reason in lacking.items() if reason}
        if choices == list(PRECISIONS):
            reasons = {**hardware.slow, **reasons}
        kept, dropped = PRECISION.split(choices, reasons, self.name)
        parameter = PRECISION.build(adjustments, kept)
        return KnobSpace(present([parameter]), dropped if parameter else [])
