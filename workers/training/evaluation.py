"""Validation on rank 0, on the whole model, whatever parts it was trained in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from workers.context import Context
    from workers.device.precision import Precision
    from workers.parallel.base import Strategy
    from workers.workload import Trainable

_LOOK_SECONDS = 0.2


class _Stopped(Exception):
    """The attempt was asked to end while it evaluated."""


class Evaluator:
    """Calls the workload's `evaluate` and gives up within a second if the attempt is asked to stop."""

    def __init__(
        self, workload: Trainable, context: Context, strategy: Strategy, precision: Precision
    ) -> None:
        self.workload, self.context, self.strategy, self.precision = (
            workload,
            context,
            strategy,
            precision,
        )
        self._looked = 0.0

    def evaluate(self) -> dict[str, float] | None:
        """Metrics on rank 0; empty on other ranks; None if it was asked to stop. Called by all ranks."""
        model = self.strategy.whole()
        if model is None:
            state = self.strategy.state()
            model = self._filled(state) if self.context.rank == 0 else None
        if self.context.rank != 0 or model is None:
            return {}
        handles = [m.register_forward_pre_hook(self._look) for m in self._watched(model)]
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), self.precision.autocast():
                return {
                    key: float(value)
                    for key, value in self.workload.evaluate(model, self.strategy.device).items()
                }
        except _Stopped:
            return None
        finally:
            model.train(training)
            for handle in handles:
                handle.remove()

    def _filled(self, state: dict[str, torch.Tensor]) -> nn.Module:
        model = self.workload.build_model().to(self.strategy.device)
        model.load_state_dict(
            state, strict=False
        )  # tied tensors are there under one of their names
        return model

    def _watched(self, model: nn.Module) -> list[nn.Module]:
        """Modules that a long evaluation keeps calling: the whole, its parts and its layers."""
        layers = [model.get_submodule(name) for name in self.workload.plan(model).layers]
        return list({id(m): m for m in [model, *model.children(), *layers]}.values())

    def _look(self, module: nn.Module, arguments: Any) -> None:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if self.context.stop_requested() is not None:
                raise _Stopped
