"""How weights are updated."""

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import Hardware
from search_spaces.parameters import Choice, Parameter

from .base import Knob, KnobSpace, present
from .option import CHANGES_THE_RESULT, Option

OPTIMIZER = Option(
    "optimizer", "rule by which weights are updated", "adamw", ("adamw", "adam", "sgd")
)
LEARNING_RATE = Option(
    "learning_rate",
    "step size at its peak",
    1e-3,
    low=1e-5,
    high=1e-1,
    log=True,
    affects=CHANGES_THE_RESULT,
)
WARMUP_UPDATES = Option(
    "warmup_updates",
    "updates until the learning rate is at its peak",
    400,
    low=10,
    high=4000,
    log=True,
    affects=CHANGES_THE_RESULT,
)
WEIGHT_DECAY = Option(
    "weight_decay",
    "pull of the weights towards 0",
    1e-4,
    low=1e-6,
    high=1e-1,
    log=True,
    affects=CHANGES_THE_RESULT,
    unset=0.0,
)
MOMENTUM = Option(
    "momentum",
    "share of the last step in the next one, under sgd",
    0.9,
    low=0.0,
    high=0.99,
    affects=CHANGES_THE_RESULT,
)


class OptimizerKnob(Knob):
    """The optimizer, its learning rate with warm-up, weight decay, and momentum under sgd."""

    name = "optimizer"
    summary = "optimizer, learning rate, warm-up and weight decay"
    options = (OPTIMIZER, LEARNING_RATE, WARMUP_UPDATES, WEIGHT_DECAY, MOMENTUM)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        *others, _ = self.options
        built = [option.build(adjustments) for option in others]
        return KnobSpace(present([*built, self._momentum(built[0], adjustments)]))

    @staticmethod
    def _momentum(kind: Parameter | None, adjustments: Mapping[str, Any]) -> Parameter | None:
        """Momentum, if sgd can be chosen, or if only momentum is tuned."""
        if isinstance(kind, Choice):
            tuned = "sgd" in kind.choices
            return MOMENTUM.build(adjustments, when={"optimizer": "sgd"}) if tuned else None
        return MOMENTUM.build(adjustments) if "momentum" in adjustments else None
