"""How weights are updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.hardware import Hardware
from search_spaces.parameters import Choice, Parameter

from ._build import CHANGES_THE_RESULT, build, present
from .base import Declared, Knob


class OptimizerKnob(Knob):
    """`optimizer` (adamw, adam, sgd), `learning_rate` (its peak), `warmup_updates`, `weight_decay`, and `momentum`
    under sgd.

    Options: one for each of these parameters (see `Knob`).
    """

    name = "optimizer"
    summary = "optimizer, learning rate, warm-up and weight decay"
    keys = ("optimizer", "learning_rate", "warmup_updates", "weight_decay", "momentum")

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        kind = build("optimizer", options, choices=("adamw", "adam", "sgd"), default="adamw")
        result = CHANGES_THE_RESULT
        rate = build(
            "learning_rate", options, low=1e-5, high=1e-1, log=True, default=1e-3, affects=result
        )
        warmup = build(
            "warmup_updates", options, low=10, high=4000, log=True, default=400, affects=result
        )
        decay = build(
            "weight_decay", options, low=1e-6, high=1e-1, log=True, default=1e-4, affects=result
        )
        return Declared(present(kind, rate, warmup, decay, self._momentum(kind, options)))

    @staticmethod
    def _momentum(kind: Parameter | None, options: Mapping[str, Any]) -> Parameter | None:
        """Only where sgd can be chosen, or where the optimizer is not tuned and momentum is asked for."""
        tuned = isinstance(kind, Choice)
        if (isinstance(kind, Choice) and "sgd" not in kind.choices) or (
            not tuned and "momentum" not in options
        ):
            return None
        when = {"optimizer": "sgd"} if tuned else None
        return build(
            "momentum",
            options,
            low=0.0,
            high=0.99,
            default=0.9,
            when=when,
            affects=CHANGES_THE_RESULT,
        )
