"""Optimizers by name, with fused kernels, and their step."""

import fnmatch
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import OPTIMIZER, OPTIMIZER_SHARDING, SPARSE_GRADIENTS
from workers.parallel.transfers import is_sharded, own_part

from .settings import OPTIMIZER_OPTIONS

MOMENTUM = 0.95  # Jordan's


class OptimizerParts(Optimizer):
    """Several optimizers in one; groups and state are theirs, so a new learning rate reaches them.

    Args:
        parts: optimizers of different parameters.
    """

    def __init__(self, *parts: Optimizer) -> None:
        self._parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        for part in parts:
            part.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step all parts; gradients are there already, so there is no closure."""
        for part in self._parts:
            part.step()


def build_optimizer(
    parameters: Mapping[str, nn.Parameter],
    options: Mapping[str, Any],
    outer: Sequence[str] = (),
    embeddings: Sequence[str] = (),
) -> Optimizer:
    """An optimizer over the parameters; vectors (biases, norms) get no weight decay, as is usual.

    The trainer sets the learning rate before each update.

    Sources: Adam of Kingma and Ba 2015 (https://arxiv.org/abs/1412.6980). Muon of Jordan et al.
    2024 (https://kellerjordan.github.io/posts/muon) takes the matrices inside the model, AdamW the
    rest; its step is scaled to that of AdamW, so that one learning rate suits both (Liu et al.
    2025, https://arxiv.org/abs/2502.16982).

    Args:
        parameters: plain or DTensor, by name.
        options: of the trial; those of `OPTIMIZER_OPTIONS` are read.
        outer: patterns of the names of parameters of the first and the last layer, see
            `Trainable.outer`.
        embeddings: names of modules whose gradients are sparse under `sparse_gradients`.

    Raises:
        UsageError: an option has no such value, or the optimizer cannot take parts of matrices.
    """
    settings = {option.name: option.value(options) for option in OPTIMIZER_OPTIONS}
    name = settings["optimizer"]
    sharded = any(is_sharded(p) for p in parameters.values())
    shared = OPTIMIZER_SHARDING.value(options)
    if name in OPTIMIZER.on_request and (sharded or shared):
        raise UsageError(f"optimizer {name} needs whole matrices: parallelism single or ddp")
    rows = _looked_up(parameters, options, embeddings, name)
    trained = [p for p in parameters.values() if p.requires_grad]
    decay = float(settings["weight_decay"])
    # One kernel does not take plain and sharded tensors. Muon takes matrices within the model.
    matches = {n for pattern in outer for n in fnmatch.filter(parameters, pattern)}
    within = {id(p) for n, p in parameters.items() if p.ndim == 2 and n not in matches}
    by_kind: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
    for parameter in trained:
        if id(parameter) not in {id(row) for row in rows}:
            inside = name == "muon" and id(parameter) in within
            kind = (inside, parameter.ndim > 1, is_sharded(parameter))
            by_kind.setdefault(kind, []).append(parameter)
    groups: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for (inside, decays, _), found in by_kind.items():
        groups[inside].append({"params": found, "weight_decay": decay if decays else 0.0})
    # torch has no fused SGD for sharded tensors; its update of many tensors at once is the same.
    fused = not (name == "sgd" and sharded)
    rule: dict[str, Any] = {"lr": 0.0, "foreach": not fused, "fused": fused}
    if name == "adafactor":
        return torch.optim.Adafactor(groups[False], lr=0.0, foreach=True)
    if name == "sgd":
        rule["momentum"] = float(settings["momentum"])
        return _made(torch.optim.SGD, groups[False], rule, shared)
    betas = (float(settings["beta1"]), float(settings["beta2"]))
    constants: dict[str, Any] = {"betas": betas, "eps": float(settings["epsilon"])}
    kernels = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    made = _made(kernels, groups[False], {**constants, **rule}, shared)
    if rows:  # its learning rate may not be 0
        return OptimizerParts(torch.optim.SparseAdam(rows, lr=1.0, **constants), made)
    if name == "muon":
        scaled: dict[str, Any] = {"momentum": MOMENTUM, "adjust_lr_fn": "match_rms_adamw"}
        return OptimizerParts(torch.optim.Muon(groups[True], lr=0.0, **scaled), made)
    return made


def _looked_up(
    parameters: Mapping[str, nn.Parameter],
    options: Mapping[str, Any],
    embeddings: Sequence[str],
    optimizer: str,
) -> list[nn.Parameter]:
    """The parameters with sparse gradients; none unless the option says so."""
    if not SPARSE_GRADIENTS.value(options):
        return []
    found = [parameters[f"{name}.weight"] for name in embeddings]
    strategy = PARALLELISM.value(options)
    shared = OPTIMIZER_SHARDING.value(options)
    if strategy == "ddp" and any(p.is_cuda for p in found) and "nccl" in dist.get_backend_config():
        raise UsageError("sparse_gradients needs parallelism single: NCCL sums no sparse tensors")
    if optimizer in ("adam", "adamw") and strategy in ("single", "ddp") and not shared:
        return found
    raise UsageError(
        "sparse_gradients needs optimizer adam or adamw, parallelism single or ddp, and no "
        f"optimizer_sharding; got {optimizer}, {strategy} and {shared}"
    )


def _made(kind: Any, groups: Any, rule: Mapping[str, Any], shared: bool) -> Optimizer:
    """The optimizer, or this rank's part of it if the ranks share its state."""
    if not shared or not dist.is_initialized():
        plain: Optimizer = kind(groups, **rule)
        return plain
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(groups, optimizer_class=kind, **rule)


def can_skip(optimizer: Optimizer, device: torch.device) -> bool:
    """Whether the optimizer's kernels can skip a step by a flag on the device.

    Only the fused ones can, and the parameters must not be offloaded.
    """
    groups = optimizer.param_groups
    return all(
        group.get("fused") and all(p.device.type == device.type for p in group["params"])
        for group in groups
    )


def step(optimizer: Optimizer, skipped: Tensor | None = None) -> None:
    """`optimizer.step()` without the front end of torch.compile.

    The import of that front end takes over a second and 70 MB.

    Args:
        optimizer: whose parameters have gradients.
        skipped: if `can_skip`, a scalar on the device of the parameters: 1 changes nothing.
    """
    own: Any = own_part(optimizer)  # under ZeRO-1 it is this one that launches the kernels
    if skipped is not None:
        _begin_momentum(own)
    own.found_inf = skipped  # as torch.amp.GradScaler does
    try:
        with torch.no_grad():
            inspect.unwrap(type(optimizer).step)(optimizer)
    finally:
        del own.found_inf


def _begin_momentum(optimizer: Optimizer) -> None:
    """Set the momentum of SGD to zero before its first step, which changes nothing in that step.

    torch would mark it as there, and leave it uninitialised if the kernels skip that step.
    """
    for group in optimizer.param_groups if isinstance(optimizer, torch.optim.SGD) else ():
        for parameter in group["params"] if group["momentum"] else ():
            if parameter.grad is not None:
                state = optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)


# Optimizers are built and cleared without that import: torch looks for this attribute before it.
for _method in (Optimizer.add_param_group, Optimizer.zero_grad):
    _plain: Any = getattr(_method, "__wrapped__", _method)
    _plain.__dynamo_disable = _plain
