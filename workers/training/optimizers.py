"""Optimizers by name, in the implementation that the configuration asks for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from workers.parallel.base import is_sharded

from .settings import OPTIMIZER_OPTIONS

OPTIMIZERS = ("adamw", "adam", "sgd")
IMPLEMENTATIONS = ("auto", "for-loop", "foreach", "fused")


def build_optimizer(parameters: Iterable[nn.Parameter], options: Mapping[str, Any]) -> Optimizer:
    """An optimizer over the parameters; weight decay spares vectors (biases, norms), as is usual.

    Args:
        parameters: plain or DTensor.
        options: `optimizer`, `optimizer_implementation`, `weight_decay`, `momentum` (sgd), `beta1`, `beta2`,
            `epsilon` (adam, adamw); the learning rate is set by the trainer before each update.

    Raises:
        UsageError: an unknown name.
    """
    settings = {**OPTIMIZER_OPTIONS, **options}
    name, implementation = settings["optimizer"], settings["optimizer_implementation"]
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer is one of {', '.join(OPTIMIZERS)}, got {name!r}")
    _spare_the_compiler()
    trained = [p for p in parameters if p.requires_grad]
    flags = _implementation(implementation, name, trained)
    decay = float(settings["weight_decay"])
    by_kind: dict[
        tuple[bool, bool], list[nn.Parameter]
    ] = {}  # one kernel does not take plain and sharded tensors
    for parameter in trained:
        by_kind.setdefault((parameter.ndim > 1, is_sharded(parameter)), []).append(parameter)
    groups = [
        {"params": found, "weight_decay": decay if kind[0] else 0.0}
        for kind, found in by_kind.items()
    ]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=float(settings["momentum"]), **flags)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    betas = (float(settings["beta1"]), float(settings["beta2"]))
    return kind(groups, lr=0.0, betas=betas, eps=float(settings["epsilon"]), **flags)


def _implementation(name: str, optimizer: str, parameters: list[nn.Parameter]) -> dict[str, bool]:
    if name not in IMPLEMENTATIONS:
        raise UsageError(
            f"optimizer_implementation is one of {', '.join(IMPLEMENTATIONS)}, got {name!r}"
        )
    if name == "auto":
        name = "fused"
    if name == "fused" and optimizer == "sgd" and any(is_sharded(p) for p in parameters):
        name = (
            "foreach"  # torch has no fused kernel for sharded tensors there; the update is the same
        )
    return {"foreach": name == "foreach", "fused": name == "fused"}


def step(optimizer: Optimizer) -> None:
    """`optimizer.step()` without torch.compile's front end, whose import alone takes over a second and 70 MB."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _spare_the_compiler() -> None:
    """Let optimizers be built and cleared without that import; what they do is the same."""
    for method in (Optimizer.add_param_group, Optimizer.zero_grad):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            plain.__dynamo_disable = (
                plain  # what torch._compile looks for before it imports the compiler
            )
