"""Data parallelism: each rank has the whole model and its rows of the batch."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import BUCKET_MEGABYTES
from workers.parallel.base import Strategy


class DDP(Strategy):
    """torch's DistributedDataParallel (Li et al. 2020, https://arxiv.org/abs/2006.15704)."""

    needs = StrategyNeeds("the model on every rank, the batch shared out, gradients averaged")
    replicated = True

    def wrap(self, model: nn.Module) -> None:
        """Wrap the model; gradients live in the buckets of DDP, so they take no second copy."""
        self.plain = model
        self.model = self._over(model)

    def wrap_own(self, model: nn.Module) -> None:
        """Wrap the loss: whatever has computed it, backward reduces the gradients of the model."""
        self.plain = self.model = model
        self._over(_Loss(model), unused=True)

    def joined(self, loss: Tensor) -> Tensor:
        return self._wrapped(loss)  # type: ignore[no-any-return]

    def _over(self, module: nn.Module, *, unused: bool = False) -> DistributedDataParallel:
        self._wrapped = DistributedDataParallel(
            module,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=unused,
            gradient_as_bucket_view=True,
            bucket_cap_mb=BUCKET_MEGABYTES.value(self.values),
        )
        self._wrapped.broadcast_buffers = False  # each rank goes on with its own in forward
        return self._wrapped

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        return nullcontext() if last else self._wrapped.no_sync()


class _Loss(nn.Module):
    """A model as DDP sees it, whose output is the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, loss: Tensor) -> Tensor:
        return loss
