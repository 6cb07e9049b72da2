"""How much of the activations compiled code keeps for backward."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .base import COMPUTES_THE_SAME, Knob, Option

ACTIVATION_MEMORY_BUDGET = Option(
    "activation_memory_budget",
    "share of its activations that compiled code may keep for backward; it recomputes the rest",
    1.0,
    (1.0, 0.75, 0.5, 0.25),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"compile": ("default", "reduce-overhead", "max-autotune")},
)


class MemoryBudgetKnob(Knob):
    """The compiler chooses what to recompute: the most memory for the least time.

    Source: https://pytorch.org/blog/activation-checkpointing-techniques/ (2025). Code that is not
    compiled keeps its activations; `activation_checkpointing` recomputes those.
    """

    name = "memory-budget"
    summary = "share of its activations that compiled code keeps"
    options = (ACTIVATION_MEMORY_BUDGET,)
    on_request = (ACTIVATION_MEMORY_BUDGET,)

    @contextmanager
    def applied(self, values: Mapping[str, Any]) -> Iterator[None]:
        """See `Knob.applied`."""
        budget = float(ACTIVATION_MEMORY_BUDGET.value(values))
        if budget == ACTIVATION_MEMORY_BUDGET.unset:
            yield
            return
        import torch._functorch.config as config

        before = config.activation_memory_budget
        config.activation_memory_budget = budget
        try:
            yield
        finally:
            config.activation_memory_budget = before
