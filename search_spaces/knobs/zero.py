"""Whether the ranks of ddp share the state of the optimizer."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

OPTIMIZER_SHARDING = Option(
    "optimizer_sharding",
    "each rank of ddp keeps the optimizer state of some parameters only",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)


class ZeroKnob(Knob):
    """ZeRO-1 (Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054) under `ddp`.

    Each rank updates the parameters whose state it keeps, and sends them to the others.
    """

    name = "zero"
    summary = "optimizer state shared out among the ranks of ddp"
    options = (OPTIMIZER_SHARDING,)
    on_request = (OPTIMIZER_SHARDING,)
    conditions = {"optimizer_sharding": {"parallelism": ("ddp",)}}
    across = ("not optimizer_sharding or optimizer in ('adamw', 'adam', 'sgd')",)
