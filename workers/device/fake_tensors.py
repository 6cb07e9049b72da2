"""Fake tensors: the memory that their operations would take, and the device they stand for.

Fake tensors of a GPU need a build of torch for GPUs. So they are tensors of the CPU that are
planned for the GPU. Code that computes in another way on a GPU asks `device_type`, not the tensor.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

# torch's allocator gives out multiples of this (torch.distributed._tools.mem_tracker).
GPU_BLOCK: Final = 512
_ATEN = torch.ops.aten
_BY_MASK = {
    _ATEN.index.Tensor,
    _ATEN.index_put.default,
    _ATEN.index_put_.default,
    _ATEN._index_put_impl_.default,
}
_SCALARS = {torch.bool: True, torch.float32: 1.0, torch.float64: 1.0}


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the live storages and keeps the largest sum. Use it around operations on fake tensors.

    Args:
        num_real: how many elements a mask of padding selects; fake tensors have no values.
        on_cpu: whether to count the copies that convolutions make on CPUs; else sizes are those of
            the blocks that torch's allocator gives out on GPUs.
    """

    def __init__(self, num_real: int, on_cpu: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_real = num_real
        self.on_cpu = on_cpu
        self.live: dict[int, int] = {}
        self.now = 0
        self.peak = 0

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ATEN._local_scalar_dense.default:
            return _SCALARS.get(args[0].dtype, 1)
        if func is _ATEN.nonzero.default:
            result: Any = torch.empty(self._selected(args[0]), args[0].ndim, dtype=torch.long)
        elif func is _ATEN.masked_select.default:
            result = args[0].new_empty(self._selected(args[1]))
        else:
            if func in _BY_MASK:
                args = (args[0], self._by_number(args[1]), *args[2:])
            result = func(*args, **kwargs)
            if self.on_cpu:
                self.peak = max(self.peak, self.now + _copies(func, args, result))
        for item in tree_iter(result):
            if isinstance(item, Tensor):
                self._add(item.untyped_storage())
        return result

    def _by_number(self, indices: Any) -> list[Tensor | None]:
        """Indices with each mask replaced by as many numbers as it selects."""
        numbered: list[Tensor | None] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                count = self._selected(index)
                numbered += [torch.empty(count, dtype=torch.long) for _ in range(index.ndim)]
            else:
                numbered.append(index)
        return numbered

    def _selected(self, mask: Tensor) -> int:
        return min(self.num_real, mask.numel())

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self.live:
            return
        size = storage.nbytes()
        if not self.on_cpu:
            size += -size % GPU_BLOCK
        self.live[key] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, key)

    def _remove(self, key: int) -> None:
        self.now -= self.live.pop(key, 0)


def _copies(func: Any, args: Any, result: Any) -> int:
    """Bytes that oneDNN needs at the peak of a convolution, results included, or 0.

    oneDNN computes on copies with channels in blocks of 16, unless the channels are last already.
    In forward it holds a copy of the input and of the output, then the copy of the output and the
    output. In backward it holds copies of the output gradient and of the input, and the input
    gradient. (Measured by the resident set around single convolutions.)
    """
    # Argument 6 says whether the convolution is transposed.
    if func is _ATEN.convolution.default and not args[6] and not _channels_last(args[0]):
        return _blocked(result) + max(_blocked(args[0]), int(result.nbytes))
    if func is _ATEN.convolution_backward.default and not _channels_last(args[1]):
        return _blocked(args[0]) + _blocked(args[1]) + (args[1].nbytes if args[-1][0] else 0)
    return 0


def _channels_last(images: Tensor) -> bool:
    return (
        images.ndim == 4
        and not images.is_contiguous()
        and images.is_contiguous(memory_format=torch.channels_last)
    )


def _blocked(images: Tensor) -> int:
    channels = images.shape[1]
    return int(images.nbytes // channels * (-(-channels // 16) * 16))


# What autocast computes in fp32 on CUDA (aten/src/ATen/autocast_mode.h, AT_FORALL_FP32). On CPUs it
# leaves most of these in half precision.
_FP32: Final = """
    acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss cosine_similarity
    cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss huber_loss
    interpolate kl_div l1_loss layer_norm log log10 log1p log2 log_softmax logsumexp
    margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss norm normalize
    pdist poisson_nll_loss pow prod reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss
    soft_margin_loss softmax softmin softplus sum
    tan triplet_margin_loss __pow__ __rpow__ __rdiv__ __rtruediv__
"""
_FP32_NAMES: Final = frozenset(_FP32.split())
_HALF: Final = (torch.float16, torch.bfloat16)


class AutocastOfCuda(TorchFunctionMode):
    """Inside, autocast on the CPU casts to fp32 what it would on CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _FP32_NAMES and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map_only(Tensor, _in_fp32, (args, kwargs))
        return func(*args, **kwargs)


def _in_fp32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in _HALF else tensor


_PLANNED: Final = ContextVar("planned device", default="")


def device_type(tensor: Tensor) -> str:
    """The type of the device on which the tensor is computed, such as "cpu" or "cuda"."""
    if torch.compiler.is_compiling():
        return tensor.device.type
    return _PLANNED.get() or tensor.device.type


@contextmanager
def planned_for(kind: str) -> Iterator[None]:
    """Inside, tensors are computed as on a device of this type."""
    before = _PLANNED.set(kind)
    try:
        yield
    finally:
        _PLANNED.reset(before)
