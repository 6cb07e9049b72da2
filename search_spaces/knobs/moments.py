"""The number format in which an optimizer keeps its state."""

from .base import Knob
from .option import Option

MOMENT_PRECISION = Option(
    "moment_precision",
    "format in which adam, adamw and sgd keep moments between updates",
    "fp32",
    ("fp32", "bf16"),
)


class MomentsKnob(Knob):
    """Moments in bf16, which take half of the memory; each step is computed in fp32.

    Moments are rounded at random, so that on average small changes are not lost
    (https://arxiv.org/abs/1502.02551).
    """

    name = "moments"
    summary = "format of the optimizer's moments"
    options = (MOMENT_PRECISION,)
    on_request = (MOMENT_PRECISION,)
    across = (
        "moment_precision == 'fp32' or optimizer in ('adamw', 'adam', 'sgd')",
        "moment_precision == 'fp32' or not sparse_gradients",
    )
