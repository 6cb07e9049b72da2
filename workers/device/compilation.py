"""What `torch.compile` does for a value of the option `compile`."""

from typing import Any

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
