"""The memory layout of the projections of attention."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

ATTENTION_LAYOUT = Option(
    "attention_layout",
    "how the projections of queries, keys and values lie in memory",
    "interleaved",
    ("interleaved", "separate", "packed"),
    affects=COMPUTES_THE_SAME,
)


class AttentionKnob(Knob):
    """`separate`, `packed` or `interleaved` projections; all compute the same function.

    `separate` has three projections. `packed` has one whose output is all queries, then all keys,
    then all values. In `interleaved` they alternate head by head.
    """

    name = "attention"
    summary = "layout of the attention projections"
    options = (ATTENTION_LAYOUT,)
