"""The number of examples from which an update is computed."""

from collections.abc import Mapping
from typing import Any

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware

from .base import Knob, KnobSpace, present
from .option import COMPUTES_THE_SAME, Option

BATCH_TOKENS = Option(
    "batch_tokens",
    "tokens in the global batch of an update",
    2048,
    (512, 1024, 2048, 4096, 8192),
    ordered=True,
    log=True,
)
BATCH_SIZE = Option(
    "batch_size",
    "items in the global batch of an update",
    64,
    (16, 32, 64, 128, 256),
    ordered=True,
    log=True,
)
ACCUMULATION = Option(
    "accumulation",
    "parts in which a batch is computed, one after the other",
    1,
    (1, 2, 4),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)
_SIZES = {"tokens": BATCH_TOKENS, "items": BATCH_SIZE}


class BatchKnob(Knob):
    """`batch_tokens` or `batch_size`, and `accumulation`, which needs less memory if it is larger.

    Adjustments: `unit` is "items", or "tokens" for texts.
    """

    name = "batch"
    summary = "batch size and gradient accumulation"
    options = (BATCH_TOKENS, BATCH_SIZE, ACCUMULATION)
    keys = ("unit",)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        unit = adjustments.get("unit", "tokens" if "batch_tokens" in adjustments else "items")
        if unit not in _SIZES:
            raise SpaceError(f"unit of knob 'batch' is one of {', '.join(_SIZES)}, got {unit!r}")
        size = _SIZES[unit].build(adjustments)
        parts = ACCUMULATION.build(adjustments)
        constraints = [f"{size.name} >= accumulation"] if size and parts else []
        return KnobSpace(present([size, parts]), constraints=constraints)
