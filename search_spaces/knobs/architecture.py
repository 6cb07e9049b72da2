"""The size of a Transformer and its regularisation."""

from .base import Knob
from .option import CHANGES_THE_RESULT, Option

NUM_LAYERS = Option("num_layers", "blocks of the encoder, and of the decoder", 3, low=1, high=6)
WIDTH = Option("width", "size of the hidden vectors", 256, (64, 128, 256, 512), ordered=True)
NUM_HEADS = Option(
    "num_heads", "attention heads; they divide the width", 4, (1, 2, 4, 8), ordered=True
)
DROPOUT = Option(
    "dropout",
    "probability that an activation is set to 0",
    0.1,
    low=0.0,
    high=0.5,
    affects=CHANGES_THE_RESULT,
)
LABEL_SMOOTHING = Option(
    "label_smoothing",
    "probability that is spread over all classes",
    0.1,
    low=0.0,
    high=0.3,
    affects=CHANGES_THE_RESULT,
)


class ArchitectureKnob(Knob):
    """Layers, width, heads, dropout and label smoothing; the heads divide the width."""

    name = "architecture"
    summary = "layers, width, heads, dropout and label smoothing"
    options = (NUM_LAYERS, WIDTH, NUM_HEADS, DROPOUT, LABEL_SMOOTHING)
    constraints = ("width % num_heads == 0",)
