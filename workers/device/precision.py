"""Number formats of training: fp32, tf32, bf16, and fp16 with dynamic loss scaling.

Also how modules are compiled, steps traced, and operations planned on fake tensors.

Master weights stay fp32. fp64 is not tuned: it tells rounding errors from mistakes
(benchmarks/training/strategies.py).

Fake tensors of a GPU need a build of torch for GPUs. So they are tensors of the CPU that are
planned for the GPU. Code that computes in another way on a GPU asks `device_type`, not the tensor.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from search_spaces.errors import UsageError
from search_spaces.knobs.table import MATMUL_PRECISION, PRECISION
from workers.files import Folder

HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
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


class Precision:
    """The number format of a model's forward pass on a device.

    Args:
        name: a value of option `precision`.
        device: of the model.

    Attributes:
        scaler: of the loss under fp16 (Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740);
            not enabled under other formats.
        acted: whether a forward pass has computed in it.

    Raises:
        UsageError: the name is unknown, or the device cannot compute in it.
    """

    acted = False

    def __init__(self, name: str, device: torch.device) -> None:
        PRECISION.checked(name)
        if name == "tf32" and (
            device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)
        ):
            raise UsageError("tf32 needs an NVIDIA GPU of compute capability 8.0 or later")
        self.name = name
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    @property
    def scale(self) -> float | Tensor:
        """The factor of the loss before backward, a number or a scalar."""
        one = torch.ones((), device=self.device)
        return self.scaler.scale(one) if self.name == "fp16" else 1.0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass and the loss."""
        if self.name not in HALF:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=HALF[self.name])


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in fp32; fp64 stays fp64."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


@contextmanager
def weights_in(precision: str) -> Iterator[None]:
    """Make fp64 torch's default format if that is the precision, else fp32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "fp64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def matmul_precision(
    precision: str, option: str | None, device: torch.device | str = "cpu"
) -> Iterator[None]:
    """Set the precision of float32 matrix products, and restore it afterwards.

    Args:
        precision: of the trial; tf32 means "high".
        option: "highest", "high", "medium", or None for the precision's own. On CPUs without units
            for bf16 or tf32, "medium" selects oneDNN's kernels, which still multiply in fp32. On
            GPUs "high" and "medium" would be tf32 under other names, so only `precision` counts.
        device: of the products.

    Raises:
        UsageError: the option has no such value.
    """
    named = MATMUL_PRECISION.checked(option) if torch.device(device).type == "cpu" else None
    wanted = named or ("high" if precision == "tf32" else "highest")
    before = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(wanted)
    torch.backends.cudnn.allow_tf32 = wanted != "highest"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn


def compile_module(module: nn.Module, mode: str) -> None:
    """Compile a module in place, also one of torch's own classes.

    `nn.Module.compile` alone compiles nothing of those, such as `nn.Sequential`.

    Args:
        mode: a value of the option that is not "off".
    """
    if not type(module).forward.__module__.startswith("torch.nn."):
        module.compile(**_arguments(mode))
        return
    call = module._call_impl

    def run(*args: Any, **named: Any) -> Any:
        return call(*args, **named)  # type: ignore[no-untyped-call]

    module._compiled_call_impl = torch.compile(run, **_arguments(mode))


def _arguments(mode: str) -> dict[str, Any]:
    """The arguments of `torch.compile`.

    Without a GPU no layout is changed: with torch 2.13 the gradients of a convolution before ReLU,
    max-pooling and a linear layer would be zero.
    """
    if mode == "cudagraphs":
        return {"backend": mode}
    if torch.cuda.is_available():
        return {"mode": mode}
    from torch._inductor import list_mode_options

    return {"options": {**list_mode_options(mode), "layout_optimization": False}}


@contextmanager
def profiling(
    num_steps: int, files: Folder, rank: int = 0, *, memory: bool = True
) -> Iterator[Callable[[], None]]:
    """Trace `num_steps` steps, after one step that is skipped and one to warm up; none for 0.

    Args:
        num_steps: how many steps are traced.
        files: the trial's folder; the trace is `profile/rank-R.*.pt.trace.json` in it.
        rank: of this process.
        memory: whether allocations are traced as well.

    Yields:
        A function to call at the end of each step.
    """
    if num_steps < 1:
        yield lambda: None
        return

    from torch.profiler import profile, schedule, tensorboard_trace_handler

    keep = tensorboard_trace_handler(str((files / "profile").path), f"rank-{rank}")
    plan = schedule(wait=1, warmup=1, active=num_steps, repeat=1)
    with profile(schedule=plan, on_trace_ready=keep, profile_memory=memory) as profiler:
        yield profiler.step


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


class AutocastOfCuda(TorchFunctionMode):
    """Inside, autocast on the CPU casts to fp32 what it would on CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _FP32_NAMES and torch.is_autocast_enabled("cpu"):
            args, kwargs = tree_map_only(Tensor, in_fp32, (args, kwargs))
        return func(*args, **kwargs)


def in_fp32(tensor: Tensor) -> Tensor:
    """A tensor of half precision in fp32; others as they are."""
    return tensor.float() if tensor.dtype in HALF.values() else tensor


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
