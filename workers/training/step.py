"""One step of the optimizer: gradients are unscaled and clipped, or the step is skipped."""

import math

import torch
from torch import Tensor
from torch.optim import Optimizer

from workers.device.precision import Precision
from workers.parallel.base import Strategy

from .late import reads_late
from .optimizers import can_skip, step


class ClippedStep:
    """Steps if the norm of all gradients is finite.

    Args:
        strategy, optimizer, precision: of the training.
        clip_norm: bound on the norm; 0 for none.

    Attributes:
        unseen: the host does not read the norm, which would wait for the GPU: the optimizer's
            kernels skip the step.
    """

    def __init__(
        self, strategy: Strategy, optimizer: Optimizer, precision: Precision, clip_norm: float
    ) -> None:
        self.strategy = strategy
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        self.unseen = reads_late(strategy.device) and can_skip(optimizer, strategy.device)

    def __call__(self) -> Tensor:
        """Clip and step; returns whether the gradients were finite, as a scalar."""
        return self._unseen() if self.unseen else self._seen()

    def _seen(self) -> Tensor:
        scale = float(self.precision.scale)
        norm = float(self.strategy.grad_norm()) / scale
        finite = math.isfinite(norm)
        if finite:
            clip = self.clip_norm
            factor = (min(1.0, clip / (norm + 1e-6)) if clip else 1.0) / scale
            if factor != 1.0:
                self.strategy.scale_gradients(factor)
            step(self.optimizer)
        if self.precision.scaler:
            self.precision.scaler.update(finite)
        return torch.tensor(finite)

    def _unseen(self) -> Tensor:
        scale = self.precision.scale
        norm = self.strategy.grad_norm() / scale
        if self.clip_norm or self.precision.scaler:
            factor = torch.ones_like(norm, dtype=torch.float64)
            if self.clip_norm:
                factor = (self.clip_norm / (norm.double() + 1e-6)).clamp(max=1.0)
            self.strategy.scale_gradients((factor / scale).to(norm.dtype))
        finite = norm.isfinite()
        step(self.optimizer, skipped=(~finite).float())
        if self.precision.scaler:
            self.precision.scaler.update(finite)
        return finite
