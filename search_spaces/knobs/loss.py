"""How the loss over a large vocabulary is computed."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

CHUNKED_LOSS = Option(
    "chunked_loss",
    "compute logits and cross-entropy in chunks of rows, which keeps no logits",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
    unset=None,  # in chunks on CPUs, where it is faster
)


class LossKnob(Knob):
    """Cross-entropy without the matrix of logits.

    Wijmans et al. 2024, https://arxiv.org/abs/2411.09009. One chunk of rows at a time goes from
    hidden states to the gradients. It saves memory if the vocabulary is large.
    """

    name = "loss"
    summary = "cross-entropy in chunks"
    options = (CHUNKED_LOSS,)
