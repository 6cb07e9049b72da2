"""How many layers recompute their activations in backward."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

CHECKPOINT_EVERY = Option(
    "checkpoint_every",
    "recompute every n-th layer only, under activation_checkpointing",
    1,
    (1, 2, 3, 4),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)


class RecomputationKnob(Knob):
    """Every layer, or every second, third or fourth: less memory is saved, and less time is lost.

    `activation_checkpointing` says what is recomputed in such a layer. The workload's plan names
    the layers.
    """

    name = "recomputation"
    summary = "how many layers are recomputed"
    options = (CHECKPOINT_EVERY,)
    conditions = {"checkpoint_every": {"activation_checkpointing": ("selective", "layers")}}
