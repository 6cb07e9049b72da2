"""Validation under every strategy, on all ranks if the workload can share it out."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from workers.context import Context
from workers.device.precision import Precision
from workers.parallel.base import Strategy
from workers.ranks.process_group import side_group
from workers.workload import SharedEvaluation, Trainable

_POLL_SECONDS = 0.2


class _Stopped(Exception):
    """The attempt was asked to stop while it evaluated."""


class ValidationRunner:
    """Calls the workload's evaluation; gives up within a second if the attempt is asked to stop.

    If ranks hold parts of the model, they call it together if the workload allows that
    (`SharedEvaluation.only_calls`). Otherwise each rank that evaluates builds a whole model, which
    it receives one tensor at a time and frees afterwards.

    Args:
        workload: whose `evaluate`, or `evaluate_share` and `combine`, are called.
        context: asked about requests to stop.
        strategy: holds the model.
        precision: the model is called under its autocast.
    """

    def __init__(
        self,
        workload: Trainable,
        context: Context,
        strategy: Strategy,
        precision: Precision,
    ) -> None:
        self.workload = workload
        self.context = context
        self.strategy = strategy
        self.precision = precision
        self._polled_at = 0.0
        self._group = side_group() if context.world_size > 1 else None

    def evaluate(self) -> dict[str, float] | None:
        """Metrics on rank 0; empty on other ranks; None if asked to stop. All ranks call it."""
        workload = self.workload
        if isinstance(workload, SharedEvaluation) and (
            type(workload).evaluate is SharedEvaluation.evaluate
        ):
            return self._shared(workload)
        model = self._model(evaluates=self.context.rank == 0)
        if self.context.rank != 0 or model is None:
            return {}
        try:
            with self._evaluating(model, self._poll):
                return _floats(workload.evaluate(model, self.strategy.device))
        except _Stopped:
            return None

    def _shared(self, workload: SharedEvaluation) -> dict[str, float] | None:
        """Evaluate this rank's share."""
        index = self.context.rank
        count = self.context.world_size
        counts = True  # another rank may compute the same share
        poll = self._poll
        together = self.strategy.called_together() if workload.only_calls else None
        model = together or self._model(evaluates=True)
        assert model is not None
        if together is not None and not self.strategy.replicated:
            index, count = self.strategy.batch_rank, self.strategy.batch_degree
            counts = self.strategy.mesh.coordinate("tensor") == 0
            poll = self._poll_together
        share: Mapping[str, Any] | None = None
        try:
            with self._evaluating(model, poll):
                share = workload.evaluate_share(model, self.strategy.device, index, count)
        except _Stopped:
            pass
        shares = self._gathered(None if share is None else (counts, share))
        if self.context.rank != 0:
            return {}
        if any(found is None for found in shares):
            return None
        return _floats(workload.combine([share for counts, share in shares if counts]))

    def _gathered(self, mine: Any) -> list[Any]:
        """The shares of all ranks, on rank 0."""
        if self._group is None:
            return [mine]
        found: list[Any] | None = None
        if self.context.rank == 0:
            found = [None] * self.context.world_size
        dist.gather_object(mine, found, dst=0, group=self._group)
        return found or []

    def _model(self, *, evaluates: bool) -> nn.Module | None:
        """The whole model, on the ranks that evaluate."""
        model = self.strategy.whole()
        if model is not None:
            return model
        held: dict[str, torch.Tensor] = {}
        if evaluates:
            model = self.workload.build_model().to(self.strategy.device)
            held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, whole in self.strategy.everywhere():
                if name in held:
                    held[name].copy_(whole)
        return model

    @contextmanager
    def _evaluating(self, model: nn.Module, poll: Any) -> Iterator[None]:
        """The model in eval mode, looking for a request to stop in each of its calls."""
        # A long evaluation keeps calling the model, its parts or its layers.
        layers = [model.get_submodule(name) for name in self.workload.plan(model).layers]
        together = poll == self._poll_together
        hooked = [model] if together else list(dict.fromkeys([model, *model.children(), *layers]))
        handles = [module.register_forward_pre_hook(poll) for module in hooked]
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), self.precision.autocast():
                yield
        finally:
            model.train(training)
            for handle in handles:
                handle.remove()
            for module in model.modules() if together else ():
                if isinstance(module, FSDPModule):  # no backward pass follows that would do it
                    module.reshard()

    def _poll(self, module: nn.Module, arguments: Any) -> None:
        now = time.monotonic()
        if now - self._polled_at >= _POLL_SECONDS:
            self._polled_at = now
            if self.context.stop_requested() is not None:
                raise _Stopped

    def _poll_together(self, module: nn.Module, arguments: Any) -> None:
        """All ranks stop before the same call."""
        stops = torch.tensor(float(self.context.stop_requested() is not None))
        dist.all_reduce(stops, group=self._group)
        if stops:
            raise _Stopped


def _floats(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in metrics.items()}
