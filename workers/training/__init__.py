"""The training loop of workloads; here its settings, its options if unset, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from search_spaces.knobs import KNOBS, Option
from search_spaces.knobs.parallelism import PARALLELISM, RANKS
from search_spaces.knobs.table import (
    MOMENTUM,
    OPTIMIZER,
    PRECISION,
    WEIGHT_DECAY,
    RuntimeKnob,
)
from workers.protocol import Metric
from workers.workload import Workload

SPEED_WINDOWS: Final = 4  # enough for a median and its spread
TRAINING_METRICS: Final = (
    Metric("train_loss", "minimize"),
    Metric("seconds_per_update", "minimize", "speed"),
    Metric("items_per_second", "maximize", "speed"),
    Metric("train_seconds", None, "speed"),
    Metric("peak_memory_bytes", "minimize", "memory"),
    Metric("updates"),
    Metric("epoch"),
    Metric("learning_rate"),
    Metric("skipped_updates", "minimize"),
)


@dataclass(frozen=True)
class Settings:
    """The trainer's own settings; it reads the options of knobs where they act (`Option.value`).

    Args:
        clip_norm: bound on the norm of the gradient; 0 for none.
        train_seconds, max_updates, max_epochs: training ends at the first of these limits; one
            epoch if none is given.
        evaluate_seconds, evaluate_updates: the interval between reports; the end is always
            reported.
        speed_updates: updates of a window whose speed is reported. One window warms up,
            `SPEED_WINDOWS` are measured, then training ends without evaluation or checkpoint; 0
            for none.
        checkpoint_seconds, checkpoint_updates: the interval between checkpoints; one is always
            written at the end and at a pause.
        profile_updates: updates that torch's profiler traces (`workers.device.precision`); 0 for
            none.
    """

    clip_norm: float = 1.0
    train_seconds: float | None = None
    max_updates: int | None = None
    max_epochs: int | None = None
    evaluate_seconds: float | None = None
    evaluate_updates: int | None = None
    speed_updates: int = 0
    checkpoint_seconds: float | None = 60.0
    checkpoint_updates: int | None = None
    profile_updates: int = 0

    @classmethod
    def of(cls, workload: Workload) -> Settings:
        """The settings of a workload under its configuration."""
        given = options(workload)
        if all(given.get(name) is None for name in ("train_seconds", "max_updates", "max_epochs")):
            given = {**given, "max_epochs": 1}
        return cls(**{f.name: given[f.name] for f in fields(cls) if f.name in given})


OPTIMIZER_OPTIONS: Final = (
    OPTIMIZER,
    WEIGHT_DECAY,
    MOMENTUM,
    Option("beta1", "decay of the mean of gradients, under adam and adamw", 0.9),
    Option("beta2", "decay of the mean of squared gradients, under adam and adamw", 0.98),
    Option("epsilon", "constant in the denominator of adam and adamw", 1e-9),
)


def trainer_options() -> dict[str, Any]:
    """By name, every option of the trainer, its optimizers and strategies, and `automatic` knobs.

    The value is that of an option that is neither tuned nor fixed.
    """
    from workers.parallel import STRATEGIES
    from workers.parallel.mesh import BACKEND

    settings = {setting.name: setting.default for setting in fields(Settings)}
    known = [PARALLELISM, RANKS, PRECISION, BACKEND, *RuntimeKnob.options, *OPTIMIZER_OPTIONS]
    for kind in map(STRATEGIES.get, STRATEGIES.names()):
        known += kind.options
    for knob in map(KNOBS.get, KNOBS.names()):
        known += knob.options if knob.automatic else knob.on_request
    return {**settings, **{option.name: option.unset for option in known}}


def options(workload: Workload) -> Mapping[str, Any]:
    """Every option of a workload: tuned values before fixed values before defaults."""
    return {**workload.defaults, **workload.fixed, **workload.params}
