"""Optimizers that keep their moments in bf16 between steps."""

import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from workers.parallel.transfers import local

_BUCKET_BYTES: Final = 64 << 20  # of parameters whose moments are in fp32 at a time
_MIXERS: Final = (-1640531535, -2048144789)  # odd numbers with well spread bits (as in xxHash)


@cache
def in_bf16(kind: type[Optimizer]) -> type[Optimizer]:
    """The same optimizer with moments in bf16; a few at a time are in fp32 while it steps.

    Args:
        kind: Adam, AdamW or SGD of torch.
    """

    class Narrow(kind):  # type: ignore[valid-type,misc]
        param_groups: list[dict[str, Any]]

        def step(self, closure: Any = None) -> None:
            whole = self.param_groups
            try:
                for group in whole:
                    for bucket in _buckets(group["params"]):
                        self._store(bucket, torch.float32)
                        self.param_groups = [{**group, "params": bucket}]
                        inspect.unwrap(kind.step)(self)
                        self._store(bucket, torch.bfloat16)
            finally:
                self.param_groups = whole

        def _store(self, parameters: Sequence[Tensor], dtype: torch.dtype) -> None:
            """Bring the moments of these parameters into a format, if they are not fp64."""
            for parameter in parameters:
                state = self.state.get(parameter, {})
                for key, held in state.items():
                    if isinstance(held, Tensor) and key != "step" and held.dtype is not dtype:
                        state[key] = _converted(held, dtype, parameter, state.get("step", 0))

    Narrow.__name__ = f"{kind.__name__}WithBf16Moments"
    return Narrow


def rounded(tensor: Tensor, weights: Tensor, step: Tensor | int) -> Tensor:
    """The numbers in bf16, rounded up or down at random: on average they stay the same.

    The chance is a hash of the number, its weight and the step. So it is the same on every rank,
    under every strategy and after a checkpoint. What bf16 has already stays as it is.

    Args:
        tensor: fp32.
        weights: fp32, of the same shape.
        step: a number that each step has for itself, if there is one.
    """
    bits = tensor.view(torch.int32)
    mixed = (bits ^ (weights.view(torch.int32) * _MIXERS[1]) + step) * _MIXERS[0]
    mixed = (mixed ^ (mixed >> 15)) * _MIXERS[1]
    up = (mixed >> 16) & 0xFFFF
    return ((bits + up) & -0x10000).view(torch.float32).bfloat16()


def _converted(tensor: Tensor, dtype: torch.dtype, parameter: Tensor, step: Tensor | int) -> Tensor:
    if dtype is torch.float32 and tensor.dtype is torch.bfloat16:
        return tensor.float()
    if tensor.dtype is not torch.float32:
        return tensor
    narrow = torch.empty_like(tensor, dtype=dtype)
    count = local(step).int() if isinstance(step, Tensor) else step
    local(narrow).copy_(rounded(local(tensor), local(parameter.detach()), count))
    return narrow


def _buckets(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for parameter in parameters:
        bucket.append(parameter)
        if sum(local(p).nbytes for p in bucket) >= _BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
