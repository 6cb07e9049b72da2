"""Optimizers by name, in the implementation that the configuration names."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from workers.parallel.base import is_sharded

from .settings import OPTIMIZER_OPTIONS


def build_optimizer(parameters: Iterable[nn.Parameter], options: Mapping[str, Any]) -> Optimizer:
    """An optimizer over the parameters; vectors (biases, norms) get no weight decay, as is usual.

    The trainer sets the learning rate before each update.

    Args:
        parameters: plain or DTensor.
        options: of the trial; those of `OPTIMIZER_OPTIONS` are read.

    Raises:
        UsageError: an option has no such value.
    """
    settings = {option.name: option.value(options) for option in OPTIMIZER_OPTIONS}
    name = settings["optimizer"]
    _skip_compiler_import()
    trained = [p for p in parameters if p.requires_grad]
    flags = _implementation(settings["optimizer_implementation"], name, trained)
    decay = float(settings["weight_decay"])
    # By (has weight decay, is sharded): one kernel does not take plain and sharded tensors.
    by_kind: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in trained:
        by_kind.setdefault((parameter.ndim > 1, is_sharded(parameter)), []).append(parameter)
    groups = [
        {"params": found, "weight_decay": decay if decays else 0.0}
        for (decays, _), found in by_kind.items()
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=float(settings["momentum"]), **flags)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    betas = (float(settings["beta1"]), float(settings["beta2"]))
    return kind(groups, lr=0.0, betas=betas, eps=float(settings["epsilon"]), **flags)


def _implementation(name: str, optimizer: str, parameters: list[nn.Parameter]) -> dict[str, bool]:
    if name == "fused" and optimizer == "sgd" and any(is_sharded(p) for p in parameters):
        name = "foreach"  # torch has no fused kernel for sharded tensors; the update is the same
    return {"foreach": name == "foreach", "fused": name == "fused"}


def step(optimizer: Optimizer) -> None:
    """`optimizer.step()` without the front end of torch.compile.

    The import of that front end takes over a second and 70 MB.
    """
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _skip_compiler_import() -> None:
    """Let optimizers be built and cleared without that import; their effect is the same."""
    for method in (Optimizer.add_param_group, Optimizer.zero_grad):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            # torch._compile looks for this attribute before it imports the compiler.
            plain.__dynamo_disable = plain
