"""One step of the optimizer, which is skipped if gradients are not finite, and its numbers."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from workers.device.precision import Precision
from workers.parallel.base import Strategy

from .optimizers import can_skip, step


def reading_waits(device: torch.device) -> bool:
    """Whether reading a number waits for the device."""
    return device.type == "cuda"


class DeferredNumbers:
    """Each update's share of the mean loss, and whether its gradients were finite.

    On a GPU the numbers of the newest update are still being computed, so they are read one update
    late: while the GPU computes, the host launches the next update.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Any]] = []

    def add(self, share: Tensor, finite: Tensor) -> None:
        """Add the numbers of an update, scalars on its device."""
        both = torch.stack([share.detach().double(), finite.to(share.device).double()])
        event = None
        if both.is_cuda:
            pinned = torch.empty(2, dtype=both.dtype, pin_memory=True)
            both = pinned.copy_(both, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((both, event))

    def take(self, *, newest: bool = False) -> list[tuple[float, bool]]:
        """The numbers of the updates since the last call, without the newest unless it is asked."""
        count = len(self._waiting) - (not newest)
        found = []
        for _ in range(count):
            both, event = self._waiting.pop(0)
            if event is not None:
                event.synchronize()
            share, finite = both.tolist()
            found.append((share, finite > 0))
        return found


class ClippedStep:
    """Steps if the norm of all gradients is finite.

    Args:
        strategy: computes the norm of the gradients of all ranks, and scales them.
        optimizer: takes the step; its parameters are those of the strategy on this rank.
        precision: its scaler, if there is one, learns whether the gradients were finite.
        clip_norm: bound on the norm; 0 for none.
    """

    def __init__(
        self, strategy: Strategy, optimizer: Optimizer, precision: Precision, clip_norm: float
    ) -> None:
        self.strategy = strategy
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        # The host does not read the norm, which would wait for the GPU: kernels skip the step.
        # But all ranks must step alike, and the embeddings of a server lie in main memory.
        self._on_device = (
            reading_waits(strategy.device)
            and can_skip(optimizer, strategy.device)
            and not strategy.needs.rpc
        )

    def __call__(self) -> Tensor:
        """Clip and step; returns whether the gradients were finite, as a scalar."""
        scale, scaler = self.precision.scale, self.precision.scaler
        norm = self.strategy.grad_norm() / scale
        finite = norm.isfinite()
        if self.clip_norm or scaler:
            factor = torch.ones_like(norm, dtype=torch.float64)
            if self.clip_norm:
                factor = (self.clip_norm / (norm.double() + 1e-6)).clamp(max=1.0)
            factor = (factor / scale).to(norm.dtype)
            self.strategy.scale_gradients(factor if self._on_device else float(factor))
        if self._on_device:
            step(self.optimizer, skipped=(~finite).float())
        elif finite:
            step(self.optimizer)
        if scaler:
            scaler.update(finite)
        return finite
