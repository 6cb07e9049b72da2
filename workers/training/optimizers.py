"""Optimizers by name, with fused kernels; their step, which is skipped if gradients are not finite,
and its numbers.
"""

import inspect
from collections.abc import Mapping, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.table import SPARSE_GRADIENTS
from workers.device.precision import Precision
from workers.parallel.base import Strategy

from . import OPTIMIZER_OPTIONS


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
    embeddings: Sequence[str] = (),
) -> Optimizer:
    """An optimizer over the parameters; vectors (biases, norms) get no weight decay, as is usual.

    The trainer sets the learning rate before each update.

    Args:
        parameters: plain or DTensor, by name.
        options: of the trial; those of `OPTIMIZER_OPTIONS` are read.
        embeddings: names of modules whose gradients are sparse under `sparse_gradients`.

    Raises:
        UsageError: an option has no such value, or does not go with sparse gradients.
    """
    settings = {option.name: option.value(options) for option in OPTIMIZER_OPTIONS}
    name = settings["optimizer"]
    rows = []
    if SPARSE_GRADIENTS.value(options):
        rows = [parameters[f"{name}.weight"] for name in embeddings]
        strategy = PARALLELISM.value(options)
        ranks_on_gpus = strategy == "ddp" and any(row.is_cuda for row in rows)
        nccl = ranks_on_gpus and "nccl" in dist.get_backend_config()
        if name == "sgd" or strategy not in ("single", "ddp") or nccl:
            raise UsageError(
                "sparse_gradients needs optimizer adam or adamw, and parallelism single or ddp; "
                f"got {name} and {strategy}{', and NCCL sums no sparse tensors' if nccl else ''}"
            )
    decay = float(settings["weight_decay"])
    # By (has weight decay, is sharded): one kernel does not take plain and sharded tensors.
    by_kind: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in parameters.values():
        if parameter.requires_grad and all(parameter is not row for row in rows):
            alike = by_kind.setdefault((parameter.ndim > 1, isinstance(parameter, DTensor)), [])
            alike.append(parameter)
    groups = [
        {"params": found, "weight_decay": decay if decays else 0.0}
        for (decays, _), found in by_kind.items()
    ]
    if name == "sgd":
        # torch has no fused SGD for sharded tensors; its update of many tensors at once is the same
        fused = not any(sharded for _, sharded in by_kind)
        momentum = float(settings["momentum"])
        sgd = torch.optim.SGD(groups, lr=0.0, momentum=momentum, foreach=not fused, fused=fused)
        for parameter in chain.from_iterable(by_kind.values()) if momentum else ():
            # torch would leave it uninitialised if the kernels skip the first step.
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    betas = (float(settings["beta1"]), float(settings["beta2"]))
    rule: dict[str, Any] = {"betas": betas, "eps": float(settings["epsilon"])}
    kind: Any = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    made: Optimizer = kind(groups, lr=0.0, fused=True, **rule)
    if not rows:
        return made
    return OptimizerParts(torch.optim.SparseAdam(rows, lr=1.0, **rule), made)  # 0 is refused


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
    own: Any = optimizer
    own.found_inf = skipped  # as torch.amp.GradScaler does
    try:
        with torch.no_grad():
            inspect.unwrap(type(optimizer).step)(optimizer)
    finally:
        del own.found_inf


def reading_waits(device: torch.device) -> bool:
    """Whether reading a number waits for the device."""
    return device.type == "cuda"


class DeferredNumbers:
    """Each update's share of the mean loss, and whether its gradients were finite.

    On a GPU the numbers of the newest update are still being computed, so they are read one update
    late: while the GPU computes, the host launches the next update.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, Any]] = []

    def add(self, share: Tensor, finite: Tensor) -> None:
        """Add the numbers of an update, scalars on its device."""
        both = torch.stack([share.detach().double(), finite.to(share.device).double()])
        event = None
        if both.is_cuda:
            pinned = torch.empty(2, dtype=both.dtype, pin_memory=True)
            both = pinned.copy_(both, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        self._waiting.append((both, event))

    def take(self, *, newest: bool = False) -> list[tuple[float, bool]]:
        """The numbers of the updates since the last call, without the newest unless it is asked."""
        count = len(self._waiting) - (not newest)
        ready, self._waiting = self._waiting[: max(0, count)], self._waiting[max(0, count) :]
        for _, event in ready:
            if event is not None:
                event.synchronize()
        return [(share, finite > 0) for share, finite in (both.tolist() for both, _ in ready)]


class ClippedStep:
    """Steps if the norm of all gradients is finite.

    Args:
        strategy: computes the norm of the gradients of all ranks, and scales them.
        optimizer: takes the step; its parameters are those of the strategy on this rank.
        precision: its scaler learns whether the gradients were finite.
        clip_norm: bound on the norm; 0 for none.
    """

    def __init__(
        self, strategy: Strategy, optimizer: Optimizer, precision: Precision, clip_norm: float
    ) -> None:
        self.strategy = strategy
        self.optimizer = optimizer
        self.precision = precision
        self.clip_norm = clip_norm
        # The host does not read the norm, which would wait for the GPU: kernels skip the step.
        # But all ranks must step alike, and the embeddings of a server lie in main memory.
        self._on_device = (
            reading_waits(strategy.device)
            and can_skip(optimizer, strategy.device)
            and not strategy.needs.rpc
        )

    def __call__(self) -> Tensor:
        """Clip and step; returns whether the gradients were finite, as a scalar."""
        scale, scaler = self.precision.scale, self.precision.scaler
        norm = self.strategy.grad_norm()
        # The scaler looks at the norm of all ranks, so that they skip the same updates.
        whole: Any = SimpleNamespace(param_groups=[{"params": [torch.empty_like(norm)]}])
        whole.param_groups[0]["params"][0].grad = norm
        scaler.unscale_(whole)
        finite = norm.isfinite()
        if self.clip_norm or scaler.is_enabled():
            factor = torch.ones_like(norm, dtype=torch.float64)
            if self.clip_norm:
                factor = (self.clip_norm / (norm.double() + 1e-6)).clamp(max=1.0)
            factor = (factor / scale).to(norm.dtype)
            self.strategy.scale_gradients(factor if self._on_device else float(factor))
        if self._on_device:
            step(self.optimizer, skipped=(~finite).float())
        elif finite:
            step(self.optimizer)
        scaler.update()
        return finite


# Optimizers are built and cleared without that import: torch looks for this attribute before it.
for _method in (Optimizer.add_param_group, Optimizer.zero_grad):
    _plain: Any = getattr(_method, "__wrapped__", _method)
    _plain.__dynamo_disable = _plain
