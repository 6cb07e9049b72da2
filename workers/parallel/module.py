"""Strategies with one module that computes the forward pass of this rank's rows."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces.knobs.runtime import COMPILE
from workers.data.batch import BatchShare
from workers.device.peak_memory import Contributions
from workers.device.precision import Precision, wide

from .base import Strategy
from .transfers import Tensors


class ModuleStrategy(Strategy):
    """A strategy with one module that computes the forward pass of this rank's rows.

    `model` is the module that is called, `plain` the model as it was given.
    """

    contributions: Contributions | None = None
    model: nn.Module
    plain: nn.Module

    def parameters(self) -> dict[str, nn.Parameter]:
        """See `Strategy`."""
        return dict(self.plain.named_parameters())

    def buffers(self) -> Tensors:
        """See `Strategy`."""
        kept = self.plain.state_dict().keys()
        return {name: buffer for name, buffer in self.plain.named_buffers() if name in kept}

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """See `Strategy`."""
        total = torch.zeros((), device=self.device)
        for part, last in self.microbatches(share):
            with self.synchronised(last):
                with precision.autocast(), self.recording():
                    loss = self.workload.loss(self.model, part)
                mean = share.mean(wide(loss))
                scaled = mean * (precision.scale * self.mean_over())
                scaled.backward()  # type: ignore[no-untyped-call]
            total += mean.detach()
        self.finish_gradients()
        return total / self.mesh.tensor  # ranks that share each product all have the whole loss

    def recording(self) -> AbstractContextManager[Any]:
        """Record the activations of the first microbatch by module, unless it is compiled."""
        if self.contributions is not None or COMPILE.value(self.values) != "off":
            return nullcontext()
        self.contributions = Contributions(self.plain)
        return self.contributions.recording()

    def memory_by_module(self, state_bytes: Callable[[Tensor], int]) -> dict[str, int] | None:
        """See `Strategy`."""
        recorded = self.contributions
        return recorded.table(self.parameters(), state_bytes) if recorded else None

    def mean_over(self) -> int:
        """The divisor of the collective reduction of gradients; the loss is multiplied by it."""
        return self.batch_degree

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """The context of a microbatch; only the last one need reduce gradients over ranks."""
        return nullcontext()

    def finish_gradients(self) -> None:
        """Called after the backward pass of the last microbatch; each row is then there once."""
        for parameter in self.plain.parameters():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()

    def whole(self) -> nn.Module | None:
        """See `Strategy`."""
        return self.plain if self.replicated else None

    def called_together(self) -> nn.Module | None:
        """See `Strategy`."""
        return self.plain
