"""Number format of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import PRECISIONS, Hardware
from search_spaces.parameters import ALL, Value

from ._build import build, narrowed, part, present, wanted_choices
from .base import Declared, Knob


class Precision(Knob):
    """`precision`: fp32, tf32 (matrix products with 10-bit mantissas), bf16, or fp16 with dynamic loss scaling.

    Options: `precision` (see `Knob`). Formats that the hardware cannot run are dropped. One that it only emulates is
    dropped too, unless it is asked for by name.
    """

    name = "precision"
    summary = "number format of training"
    keys = ("precision",)

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        choices = wanted_choices(options, "precision", PRECISIONS)
        reasons: dict[Value, str] = {
            p: reason for p in PRECISIONS if (reason := hardware.lacks_precision(p))
        }
        if choices == list(PRECISIONS):
            reasons.update({p: reason for p, reason in hardware.slow.items() if p not in reasons})
        kept, dropped = part(self.name, "precision", choices, reasons)
        parameter = build(
            "precision",
            narrowed(options, "precision", kept),
            choices=kept,
            default="fp32",
            affects=ALL,
        )
        return Declared(present(parameter), dropped if parameter else [])
