"""How much an update is computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.errors import SpaceError
from search_spaces.hardware import Hardware

from ._build import COMPUTES_THE_SAME, build, present
from .base import Declared, Knob

_UNITS = {
    "tokens": ("batch_tokens", (512, 1024, 2048, 4096, 8192), 2048),
    "items": ("batch_size", (16, 32, 64, 128, 256), 64),
}


class Batch(Knob):
    """`batch_tokens` or `batch_size`, the global batch of an update, and `accumulation`, in how many parts it is
    computed one after the other: the same function in less memory.

    Options: `unit` ("items", or "tokens" for texts); `batch_tokens`, `batch_size` and `accumulation` (see `Knob`).
    """

    name = "batch"
    summary = "batch size and gradient accumulation"
    keys = ("unit", "batch_tokens", "batch_size", "accumulation")

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        unit = options.get("unit", "tokens" if "batch_tokens" in options else "items")
        if unit not in _UNITS:
            raise SpaceError(f"unit of knob 'batch' is one of {', '.join(_UNITS)}, got {unit!r}")
        name, choices, default = _UNITS[unit]
        ranged = isinstance(options.get(name), Mapping) and "low" in options[name]
        size = build(
            name,
            options,
            **({"log": True} if ranged else {"choices": choices, "ordered": True}),
            default=default,
        )
        parts = build(
            "accumulation",
            options,
            choices=(1, 2, 4),
            ordered=True,
            default=1,
            affects=COMPUTES_THE_SAME,
        )
        constraints = [f"{name} >= accumulation"] if size and parts else []
        return Declared(present(size, parts), constraints=constraints)
