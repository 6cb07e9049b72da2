"""The size of a Transformer and its regularisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import Hardware

from ._build import CHANGES_THE_RESULT, build, present
from .base import Declared, Knob


class Architecture(Knob):
    """`num_layers`, `width`, `num_heads` (which divides the width), `dropout` and `label_smoothing`.

    Options: one for each of these parameters (see `Knob`).
    """

    name = "architecture"
    summary = "layers, width, heads, dropout and label smoothing"
    keys = ("num_layers", "width", "num_heads", "dropout", "label_smoothing")

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        layers = build("num_layers", options, low=1, high=6, default=3)
        width = build("width", options, choices=(64, 128, 256, 512), ordered=True, default=256)
        heads = build("num_heads", options, choices=(1, 2, 4, 8), ordered=True, default=4)
        result = CHANGES_THE_RESULT
        dropout = build("dropout", options, low=0.0, high=0.5, default=0.1, affects=result)
        smoothing = build(
            "label_smoothing", options, low=0.0, high=0.3, default=0.1, affects=result
        )
        constraints = ["width % num_heads == 0"] if width and heads else []
        return Declared(present(layers, width, heads, dropout, smoothing), constraints=constraints)
