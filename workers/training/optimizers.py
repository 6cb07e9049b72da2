"""Optimizers by name, with fused kernels; Muon and sparse Adam."""

import fnmatch
import inspect
from collections.abc import Iterable, Mapping, Sequence
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


class _OptimizerParts(Optimizer):
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


class MuonWithAdamW(_OptimizerParts):
    """Orthogonalised momentum for matrices, AdamW for the other parameters, in one optimizer.

    Sources: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); the step of a matrix is
    scaled to that of AdamW, so that one learning rate suits both (Liu et al. 2025,
    https://arxiv.org/abs/2502.16982).

    Args:
        matrices: groups of parameters of two dimensions, at least one.
        others: groups of the other parameters, at least one.
        adamw: further arguments of AdamW.
    """

    def __init__(
        self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], **adamw: Any
    ) -> None:
        muon = torch.optim.Muon(matrices, lr=0.0, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw")
        super().__init__(muon, torch.optim.AdamW(others, lr=0.0, **adamw))


def split(groups: Iterable[dict[str, Any]], apart: set[int]) -> tuple[list[Any], list[Any]]:
    """The groups of matrices that Muon takes, and the groups of all else; none is empty.

    Args:
        groups: of parameters.
        apart: identities of parameters that are no matrices inside of the model.
    """
    matrices: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in groups:
        inside = [p for p in group["params"] if p.ndim == 2 and id(p) not in apart]
        rest = [p for p in group["params"] if p.ndim != 2 or id(p) in apart]
        matrices += [{**group, "params": inside}] if inside else []
        others += [{**group, "params": rest}] if rest else []
    return matrices, others


class SparseAdamWithOther(_OptimizerParts):
    """torch's SparseAdam for embeddings, another optimizer for the other parameters.

    Args:
        embeddings: parameters with sparse gradients, at least one.
        other: of the other parameters.
        rule: the constants of Adam (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980).
    """

    def __init__(
        self, embeddings: Sequence[nn.Parameter], other: Optimizer, rule: Mapping[str, Any]
    ) -> None:
        constants = {name: rule[name] for name in ("betas", "eps")}
        sparse = torch.optim.SparseAdam(list(embeddings), lr=1.0, **constants)  # 0 is refused
        super().__init__(sparse, other)
        self._embeddings = tuple(embeddings)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step both parts."""
        super().step()
        for parameter in self._embeddings:
            state = self.state[parameter]
            if isinstance(state.get("step"), int):  # a checkpoint keeps tensors alone
                state["step"] = torch.tensor(float(state["step"]))


def look_up_sparsely(
    model: nn.Module, embeddings: Sequence[str], values: Mapping[str, Any]
) -> None:
    """Let embeddings of a model have sparse gradients if the option says so.

    Args:
        model: changed in place.
        embeddings: dotted names of the plan.
        values: of every option of the trial.

    Raises:
        UsageError: the plan names no embedding.
    """
    if not SPARSE_GRADIENTS.value(values):
        return
    if not embeddings:
        raise UsageError("sparse_gradients needs a workload whose plan names embeddings")
    for name in embeddings:
        module = model.get_submodule(name)
        if not isinstance(module, nn.Embedding):
            raise UsageError(f"{name!r} is a {type(module).__name__}, which has no sparse gradient")
        module.sparse = True


def build_optimizer(
    parameters: Mapping[str, nn.Parameter],
    options: Mapping[str, Any],
    outer: Sequence[str] = (),
    embeddings: Sequence[str] = (),
) -> Optimizer:
    """An optimizer over the parameters; vectors (biases, norms) get no weight decay, as is usual.

    The trainer sets the learning rate before each update.

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
    _skip_compiler_import()
    trained = [p for p in parameters.values() if p.requires_grad]
    if name in OPTIMIZER.on_request and any(is_sharded(p) for p in trained):
        raise UsageError(f"optimizer {name} needs whole matrices: parallelism single or ddp")
    if name in OPTIMIZER.on_request and OPTIMIZER_SHARDING.value(options):
        raise UsageError(f"optimizer_sharding takes adamw, adam and sgd, not {name}")
    rows = _looked_up(parameters, options, embeddings, name)
    trained = [p for p in trained if id(p) not in {id(row) for row in rows}]
    flags = kernels(name == "sgd", trained)
    decay = float(settings["weight_decay"])
    # By (has weight decay, is sharded): one kernel does not take plain and sharded tensors.
    by_kind: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in trained:
        by_kind.setdefault((parameter.ndim > 1, is_sharded(parameter)), []).append(parameter)
    groups = [
        {"params": found, "weight_decay": decay if decays else 0.0}
        for (decays, _), found in by_kind.items()
    ]
    shared = OPTIMIZER_SHARDING.value(options) and dist.is_initialized()
    if name == "sgd":
        arguments = {"momentum": float(settings["momentum"]), **flags}
        return _made(torch.optim.SGD, groups, arguments, shared)
    if name == "adafactor":
        return torch.optim.Adafactor(groups, lr=0.0, foreach=flags["foreach"] or flags["fused"])
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    betas = (float(settings["beta1"]), float(settings["beta2"]))
    rule: dict[str, Any] = {"betas": betas, "eps": float(settings["epsilon"]), **flags}
    if name != "muon":
        made = _made(kind, groups, rule, shared)
        return SparseAdamWithOther(rows, made, rule) if rows else made
    matches = {n for pattern in outer for n in fnmatch.filter(parameters, pattern)}
    matrices, others = split(groups, {id(parameters[n]) for n in matches})
    if matrices and others:
        return MuonWithAdamW(matrices, others, **rule)
    raise UsageError("optimizer muon needs a model with matrices, and with other parameters")


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
    if not shared:
        plain: Optimizer = kind(groups, lr=0.0, **rule)
        return plain
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(groups, optimizer_class=kind, lr=0.0, **rule)


def kernels(is_sgd: bool, parameters: list[nn.Parameter]) -> dict[str, bool]:
    """The arguments of an optimizer that choose its kernels: fused ones, which wait for no number.

    torch has no fused SGD for sharded tensors; its update of many tensors at once is the same.
    """
    fused = not (is_sgd and any(is_sharded(p) for p in parameters))
    return {"foreach": not fused, "fused": fused}


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


def _skip_compiler_import() -> None:
    """Let optimizers be built and cleared without that import; their effect is the same."""
    for method in (Optimizer.add_param_group, Optimizer.zero_grad):
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            # torch._compile looks for this attribute before it imports the compiler.
            plain.__dynamo_disable = plain
