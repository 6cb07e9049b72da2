"""How weights are updated."""

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import Hardware
from search_spaces.parameters import Choice, Parameter

from .base import Knob, KnobSpace, present
from .option import CHANGES_THE_RESULT, Option

OPTIMIZER = Option(
    "optimizer",
    "rule by which weights are updated",
    "adamw",
    ("adamw", "adam", "sgd"),
    on_request=("adafactor", "muon"),
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
    """The optimizer, its learning rate with warm-up, weight decay, and momentum under sgd.

    Adafactor (Shazeer and Stern 2018, https://arxiv.org/abs/1804.04235) keeps a row and a column of
    moments in place of a matrix. Muon (Jordan et al. 2024) takes the matrices inside the model and
    leaves the rest to AdamW. Both need whole matrices.
    """

    name = "optimizer"
    summary = "optimizer, learning rate, warm-up and weight decay"
    across = ("optimizer not in ('adafactor', 'muon') or parallelism in ('single', 'ddp')",)
    on_request = (OPTIMIZER,)
    options = (OPTIMIZER, LEARNING_RATE, WARMUP_UPDATES, WEIGHT_DECAY, MOMENTUM)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        *others, _ = self.options
        built = [option.build(adjustments) for option in others]
        parameters = present([*built, self._momentum(built[0], adjustments)])
        return KnobSpace(parameters, OPTIMIZER.not_named(built[0]))

    @staticmethod
    def _momentum(kind: Parameter | None, adjustments: Mapping[str, Any]) -> Parameter | None:
        """Momentum, if sgd can be chosen, or if only momentum is tuned."""
        if isinstance(kind, Choice):
            tuned = "sgd" in kind.choices
            return MOMENTUM.build(adjustments, when={"optimizer": "sgd"}) if tuned else None
        return MOMENTUM.build(adjustments) if "momentum" in adjustments else None
