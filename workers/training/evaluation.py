"""Validation under every strategy, on all ranks if the workload can share it out."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from workers.context import Context
from workers.device.precision import Precision
from workers.parallel.base import Strategy
from workers.parallel.transfers import sent
from workers.ranks.process_group import side_group
from workers.workload import SharedEvaluation, Trainable

_POLL_SECONDS = 0.2


class _Stopped(Exception):
    """The attempt was asked to stop while it evaluated."""


class ValidationRunner:
    """Calls the workload's evaluation; gives up within a second if the attempt is asked to stop.

    If ranks hold parts of the model, each rank that evaluates builds a whole model, which it
    receives one tensor at a time and frees afterwards.

    Args:
        workload: whose `evaluate`, or `evaluate_share` and `combine`, are called.
        context: asked about requests to stop.
        strategy: holds the model.
        precision: the model is called under its autocast.
    """

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
        workload: Any = self.workload
        device, context = self.strategy.device, self.context
        share = type(workload).evaluate is SharedEvaluation.evaluate
        model = self._model(evaluates=share or context.rank == 0)
        found: Any = None
        if model is not None:
            with suppress(_Stopped), self._evaluating(model):
                if share:
                    found = workload.evaluate_share(model, device, context.rank, context.world_size)
                else:
                    found = workload.evaluate(model, device)
        if share:
            shares = [found]
            if context.world_size > 1:
                shares *= context.world_size
                dist.all_gather_object(shares, found, group=side_group())
            found = None if any(one is None for one in shares) else workload.combine(shares)
        if context.rank:
            return {}
        return None if found is None else {key: float(value) for key, value in found.items()}

    def _model(self, *, evaluates: bool) -> nn.Module | None:
        """The whole model, on the ranks that evaluate."""
        if self.strategy.replicated:
            return self.strategy.plain if evaluates else None
        model = self.workload.build_model().to(self.strategy.device) if evaluates else None
        held = {**dict(model.named_parameters()), **dict(model.named_buffers())} if model else {}
        with torch.no_grad():
            for name, whole in sent(self.strategy.state()[""]):
                if name in held:
                    held[name].copy_(whole)
        return model

    @contextmanager
    def _evaluating(self, model: nn.Module) -> Iterator[None]:
        """The model in eval mode, looking for a request to stop in each of its calls."""
        # A long evaluation keeps calling the model, its parts or its layers.
        layers = map(model.get_submodule, self.workload.plan(model).layers)
        hooked = [model, *model.children(), *layers]
        handles = [module.register_forward_pre_hook(self._poll) for module in dict.fromkeys(hooked)]
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), self.precision.autocast():
                yield
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
