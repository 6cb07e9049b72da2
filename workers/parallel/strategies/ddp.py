"""Data parallelism: each rank has the whole model and its rows of the batch; gradients are averaged."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workers.parallel.base import ModuleStrategy
from workers.parallel.needs import Needs

__all__ = ["DDP"]


class DDP(ModuleStrategy):
    """torch's DistributedDataParallel (Li et al. 2020, https://arxiv.org/abs/2006.15704).

    Options: `unused_parameters` where some updates do not reach every parameter, `static_graph` where all updates
    have the same graph.
    """

    needs = Needs("the model on every rank, the batch shared out, gradients averaged")

    @classmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """All ranks on the data axis."""
        return {"data": num_ranks}

    def wrap(self, model: nn.Module) -> None:
        """Wrap in DistributedDataParallel; gradients live in its buckets, so they take no second copy."""
        self.plain = model
        self.model = self._wrapped = DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=bool(self.options.get("unused_parameters", False)),
            static_graph=bool(self.options.get("static_graph", False)),
            gradient_as_bucket_view=True,
            **once(),
        )

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """No all-reduce before the last microbatch."""
        return nullcontext() if last else self._wrapped.no_sync()

    def _replicated(self) -> bool:
        return True


def once() -> dict[str, Any]:
    """Have DistributedDataParallel leave buffers alone in forward, under the name that this torch has for it."""
    new = "forward_sync_buffers"
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return {new if new in known else "broadcast_buffers": False}
