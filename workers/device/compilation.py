"""What `torch.compile` does for a value of the option `compile`."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch import nn


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


# Files of torch's compiler, and the functions in them that run without compiling anything.
_COMPILER: Final = {
    "torch/_dynamo/convert_frame.py": (),
    "torch/_inductor/compile_fx.py": ("run",),
    "torch/_inductor/select_algorithm.py": (),
}


def is_compiling() -> bool:
    """Whether a thread of this process compiles a graph; may be called in any thread."""
    return any(map(_compiles, sys._current_frames().values()))


def _compiles(frame: FrameType | None) -> bool:
    while frame is not None:
        path = "/".join(Path(frame.f_code.co_filename).parts[-3:])
        if path in _COMPILER and frame.f_code.co_name not in _COMPILER[path]:
            return True
        frame = frame.f_back
    return False
