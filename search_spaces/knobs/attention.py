"""How queries, keys and values of attention lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import Hardware

from ._build import COMPUTES_THE_SAME, build, present
from .base import Declared, Knob

LAYOUTS = ("separate", "packed", "interleaved")


class Attention(Knob):
    """`attention_layout`: three projections (separate), one whose output is q, k and v one after the other (packed),
    or one in which they alternate head by head (interleaved). All compute the same function.

    Options: `attention_layout` (see `Knob`).
    """

    name = "attention"
    summary = "layout of the attention projections"
    keys = ("attention_layout",)

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        layout = build(
            "attention_layout",
            options,
            choices=LAYOUTS,
            default="separate",
            affects=COMPUTES_THE_SAME,
        )
        return Declared(present(layout))
