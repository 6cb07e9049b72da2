"""Validation on rank 0, on the whole model, under every strategy."""

import time
from typing import Any

import torch
from torch import nn

from workers.context import Context
from workers.device.precision import Precision
from workers.parallel.base import Strategy
from workers.workload import Trainable

_POLL_SECONDS = 0.2


class _Stopped(Exception):
    """The attempt was asked to stop while it evaluated."""


class ValidationRunner:
    """Calls the workload's `evaluate`; gives up within a second if the attempt is asked to stop."""

    def __init__(
        self, workload: Trainable, context: Context, strategy: Strategy, precision: Precision
    ) -> None:
        self.workload = workload
        self.context = context
        self.strategy = strategy
        self.precision = precision
        self._polled_at = 0.0

    def evaluate(self) -> dict[str, float] | None:
        """Metrics on rank 0; empty on other ranks; None if asked to stop. All ranks call it."""
        model = self.strategy.whole()
        if model is None:
            state = self.strategy.state()
            if self.context.rank == 0:
                model = self.workload.build_model().to(self.strategy.device)
                model.load_state_dict(state, strict=False)  # tied tensors have one of their names
        if self.context.rank != 0 or model is None:
            return {}
        # A long evaluation keeps calling the model, its parts or its layers.
        layers = [model.get_submodule(name) for name in self.workload.plan(model).layers]
        hooked = dict.fromkeys([model, *model.children(), *layers])
        handles = [module.register_forward_pre_hook(self._poll) for module in hooked]
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), self.precision.autocast():
                found = self.workload.evaluate(model, self.strategy.device)
            return {key: float(value) for key, value in found.items()}
        except _Stopped:
            return None
        finally:
            model.train(training)
            for handle in handles:
                handle.remove()

    def _poll(self, module: nn.Module, arguments: Any) -> None:
        now = time.monotonic()
        if now - self._polled_at >= _POLL_SECONDS:
            self._polled_at = now
            if self.context.stop_requested() is not None:
                raise _Stopped
