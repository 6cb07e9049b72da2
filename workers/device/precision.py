"""Number formats of training: fp32, tf32, bf16, and fp16 with dynamic loss scaling.

Also how modules are compiled, and steps traced.

Master weights stay fp32. fp64 is not tuned: it tells rounding errors from mistakes
(benchmarks/training/strategies.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn

from search_spaces.errors import UsageError
from search_spaces.knobs.table import MATMUL_PRECISION, PRECISION
from workers.files.folder import Folder

HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LossScaler:
    """Dynamic loss scaling for fp16 (Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740).

    The constants are those of `torch.amp.GradScaler`. That class finds an overflow in the gradients
    of one rank. This one uses the global norm, so that ranks with different shards skip the same
    updates. Its numbers lie on the device, so that the host does not wait for them.

    Args:
        device: where the loss is computed.
        scale: the factor of the loss.
        growth_interval: the scale is doubled after this many updates in a row without an overflow.

    Attributes:
        scale, streak: the factor and the number of these updates so far; scalars.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        scale: float = 65536.0,
        growth_interval: int = 2000,
    ) -> None:
        self.growth_interval = growth_interval
        self.scale = torch.tensor(scale, device=device)
        self.streak = torch.tensor(0, device=device)

    def update(self, finite: Tensor | bool) -> None:
        """Halve the scale after an overflow, double it after `growth_interval` good updates."""
        good = torch.as_tensor(finite, device=self.scale.device)
        streak = torch.where(good, self.streak + 1, 0)
        grows = streak == self.growth_interval
        factor = torch.where(grows, 2.0, torch.where(good, 1.0, 0.5))
        self.scale = (self.scale * factor).clamp(min=1.0)
        self.streak = torch.where(grows, 0, streak)

    def state(self) -> dict[str, float]:
        """The state that a checkpoint keeps."""
        return {"scale": float(self.scale), "streak": int(self.streak)}

    def load(self, state: Mapping[str, float]) -> None:
        """The inverse of `state`."""
        self.scale = torch.full_like(self.scale, float(state["scale"]))
        self.streak = torch.full_like(self.streak, int(state["streak"]))


class Precision:
    """The number format of a model's forward pass on a device.

    Args:
        name: a value of option `precision`.
        device: of the model.

    Raises:
        UsageError: the name is unknown, or the device cannot compute in it.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        PRECISION.checked(name)
        if name == "tf32" and (
            device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)
        ):
            raise UsageError("tf32 needs an NVIDIA GPU of compute capability 8.0 or later")
        self.name = name
        self.device = device
        self.scaler = LossScaler(device) if name == "fp16" else None

    @property
    def scale(self) -> float | Tensor:
        """The factor of the loss before backward, a number or a scalar."""
        return self.scaler.scale if self.scaler else 1.0

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
        files: the trial's folder; the trace is `profile/rank-R.pt.trace.json` in it.
        rank: of this process.
        memory: whether allocations are traced as well.

    Yields:
        A function to call at the end of each step.
    """
    if num_steps < 1:
        yield lambda: None
        return

    from torch.profiler import profile, schedule

    def keep(profiler: Any) -> None:
        traces = files / "profile"
        traces.make()
        name = f"rank-{rank}.pt.trace.json"
        traces.unlink(name)
        profiler.export_chrome_trace(str(traces.path / name))

    plan = schedule(wait=1, warmup=1, active=num_steps, repeat=1)
    with profile(schedule=plan, on_trace_ready=keep, profile_memory=memory) as profiler:
        yield profiler.step
