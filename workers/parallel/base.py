"""The face of every parallelism strategy.

A strategy takes the whole fp32 model, the same on every rank, and from then on owns it: it computes gradients of
the mean loss of a global batch, knows every parameter by its canonical name, and gives whole tensors back for
checkpoints and evaluation. Whatever the strategy, the function that is computed is the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workers.device.peak_memory import Contributions
from workers.device.precision import wide

from .mesh import side_group
from .needs import Needs

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from torch.optim import Optimizer

    from workers.device.precision import Precision
    from workers.workload import Batch, Trainable

    from .mesh import Mesh

Tensors = dict[str, Tensor]


class Strategy(ABC):
    """How one model is trained by the ranks of a mesh.

    Args:
        mesh: this rank's place among the others.
        workload: what is trained; device: where this rank computes.
        options: of the trial (`reshard_after_forward`, `num_microbatches`, ...).

    Every method is called by all ranks in the same order.
    """

    needs: ClassVar[Needs]
    apart: ClassVar[bool] = (
        False  # whether ranks hold different parameters, which rank 0 must collect
    )
    spends_process: ClassVar[bool] = (
        False  # whether torch keeps state in it that another attempt cannot use
    )

    def __init__(
        self,
        mesh: Mesh,
        workload: Trainable,
        device: torch.device,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.mesh, self.workload, self.device, self.options = mesh, workload, device, options or {}

    @classmethod
    @abstractmethod
    def degrees(cls, num_ranks: int, options: Mapping[str, Any]) -> dict[str, int]:
        """Degrees of the mesh's axes for so many ranks; UsageError where that many cannot be used."""

    @abstractmethod
    def wrap(self, model: nn.Module) -> None:
        """Take the model over. It lies on this rank's device and is the same on every rank."""

    @abstractmethod
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that this rank holds, a whole one or its part as a DTensor, by canonical name."""

    @abstractmethod
    def buffers(self) -> Tensors:
        """The buffers of this rank by canonical name."""

    @abstractmethod
    def gradients(
        self, batch: Batch, weight: float, precision: Precision, accumulation: int
    ) -> Tensor:
        """Compute the gradients of scale * (loss of the global batch / `weight`), each rank those of its parameters.

        Args:
            batch: the global batch, on the CPU; weight: of it.
            precision: of the forward pass; accumulation: how many microbatches it is computed in.

        Returns:
            This rank's share of the mean loss (the sum over ranks is the mean), scalar, detached.
        """

    @abstractmethod
    def whole(self) -> nn.Module | None:
        """The model as it was given, on rank 0, for evaluation there; None where it is in parts."""

    def optimizer(self, build: Callable[[list[nn.Parameter]], Optimizer]) -> Optimizer:
        """The optimizer of this rank's parameters."""
        return build(list(self.parameters().values()))

    def grad_norm(self) -> float:
        """Euclidean norm of the gradient of the whole model, parts on other ranks counted in."""
        squares = self._local_squares()
        if self.mesh.world_size > 1 and not self._replicated():
            dist.all_reduce(squares)
        return float(squares.sqrt().item())

    def scale_gradients(self, factor: float) -> None:
        """Multiply every gradient in place."""
        grads = [local(p.grad) for p in self.parameters().values() if p.grad is not None]
        torch._foreach_mul_(grads, factor)

    def state(self) -> Tensors:
        """Whole parameters and buffers by canonical name, on the CPU of rank 0; empty on other ranks."""
        gathered: Tensors = {}
        for name, parameter in self.parameters().items():
            whole = self.gather(parameter.detach(), name)
            if self._collects:
                gathered[name] = whole
        gathered |= {name: b.detach().cpu() for name, b in self.buffers().items()}
        return self.merge(gathered)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Overwrite parameters and buffers by whole tensors, which every rank has."""
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                parameter.copy_(self.scatter(state[name], parameter, name))
            for name, buffer in self.buffers().items():
                buffer.copy_(state[name])

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Tensors]:
        """Whole state tensors by parameter and key, on the CPU of rank 0; empty on other ranks."""
        flat: Tensors = {}
        for name, parameter in self.parameters().items():
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                whole = self.gather(value.detach(), name) if isinstance(value, Tensor) else None
                if whole is not None and self._collects:
                    flat[f"{name}|{key}"] = whole
        result: dict[str, Tensors] = {}
        for joined, tensor in self.merge(flat).items():
            name, _, key = joined.rpartition("|")
            result.setdefault(name, {})[key] = tensor
        return result

    def load_optimizer_state(
        self, optimizer: Optimizer, state: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Overwrite the optimizer's state by whole tensors, which every rank has."""
        fused = {
            p
            for g in optimizer.param_groups
            for p in g["params"]
            if g.get("fused") or g.get("capturable")
        }
        for name, parameter in self.parameters().items():
            entries = {}
            for key, value in state.get(name, {}).items():
                if value.shape != parameter.shape:  # a step count
                    entries[key] = value.to(
                        parameter.device if parameter in fused else "cpu", copy=True
                    )
                else:
                    part = self.scatter(value, parameter, name)
                    # a fused step walks through both in the order of memory: channels_last or not, it must be the same
                    like = part if is_sharded(part) else parameter.detach()
                    entries[key] = torch.empty_like(like, dtype=part.dtype).copy_(part)
            if entries:
                optimizer.state[parameter] = entries

    def merge(self, mine: Tensors) -> Tensors:
        """What all ranks hold by name, on rank 0; empty on other ranks. Here every rank holds everything."""
        return mine if self.mesh.rank == 0 else {}

    @property
    def _collects(self) -> bool:
        """Whether what is gathered here is needed: only one whole tensor at a time is kept elsewhere."""
        return self.mesh.rank == 0 or self.apart

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """The whole of a parameter (or of what is shaped like it) of which this rank holds a part, on the CPU."""
        return (tensor.full_tensor() if is_sharded(tensor) else tensor).cpu()

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """This rank's part of a whole parameter (or of what is shaped like it), placed as `like` is."""
        if not is_sharded(like):
            return whole.to(like.device, like.dtype, copy=True)
        from torch.distributed.tensor import distribute_tensor

        moved = whole.to(like.device, like.dtype)
        return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)

    def close(self, failed: bool = False) -> None:  # noqa: B027 (most start nothing)
        """Free what the strategy started; where the attempt `failed`, other ranks may be gone."""

    @property
    def batch_degree(self) -> int:
        """Among how many ranks (or groups of ranks) the rows of a batch are shared out."""
        return self.mesh.data * self.mesh.shard

    @property
    def batch_rank(self) -> int:
        """Which of these shares this rank works on."""
        return self.mesh.coordinate("data") * self.mesh.shard + self.mesh.coordinate("shard")

    def rows(self, batch: Batch, degree: int, index: int) -> tuple[Batch, bool]:
        """Share `index` of the rows of a batch, and whether it is real (a dummy row stands for an empty share)."""
        total = len(next(iter(batch.values())))
        begin, end = total * index // degree, total * (index + 1) // degree
        real = end > begin
        rows = slice(begin, end) if real else slice(0, 1)
        return {key: value[rows] for key, value in batch.items()}, real

    def microbatches(self, batch: Batch, accumulation: int) -> Iterator[tuple[Batch, bool, bool]]:
        """This rank's rows in at most `accumulation` parts on its device, with (is real, is last).

        Every rank gets as many parts, so that collective calls stay in step.
        """
        total = len(next(iter(batch.values())))
        count = max(1, min(accumulation, total // self.batch_degree))
        mine, real = self.rows(batch, self.batch_degree, self.batch_rank)
        for index in range(count):
            part, _ = self.rows(mine, count, index)
            yield self.to_device(part), real, index == count - 1

    def to_device(self, batch: Batch) -> Batch:
        """The batch on this rank's device."""
        return {key: value.to(self.device, non_blocking=True) for key, value in batch.items()}

    def _replicated(self) -> bool:
        """Whether every rank holds the whole model and the whole gradient."""
        return False

    def _local_squares(self) -> Tensor:
        """Sum over this rank's gradients of their squares, each divided by the number of ranks that hold it."""
        by_copies: dict[int, list[Tensor]] = {}
        for name, parameter in self.parameters().items():
            if parameter.grad is not None:
                by_copies.setdefault(self.copies(name, parameter), []).append(local(parameter.grad))
        total = torch.zeros((), device=self.device)
        for copies, grads in by_copies.items():
            norms = torch._foreach_norm(grads)
            total += torch.stack([wide(norm) for norm in norms]).square().sum() / copies
        return total

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        """On how many ranks the same part of a parameter lies; 1 where this rank alone has the whole gradient norm."""
        if self._replicated():
            return 1
        copies = self.mesh.world_size // self.mesh.pipeline
        if is_sharded(parameter):
            axes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
            copies //= math.prod(size for size, placed in axes if placed.is_shard())
        return copies


class ModuleStrategy(Strategy):
    """A strategy under which one module computes the forward pass of this rank's rows."""

    contributions: Contributions | None = None
    model: nn.Module  # what is called; `self.plain` is the model as it was given
    plain: nn.Module

    def parameters(self) -> dict[str, nn.Parameter]:  # noqa: D102 (the face says it)
        return dict(self.plain.named_parameters())

    def buffers(self) -> Tensors:  # noqa: D102
        kept = self.plain.state_dict().keys()
        return {name: buffer for name, buffer in self.plain.named_buffers() if name in kept}

    def gradients(
        self, batch: Batch, weight: float, precision: Precision, accumulation: int
    ) -> Tensor:  # noqa: D102
        total = torch.zeros((), device=self.device)
        for part, real, last in self.microbatches(batch, accumulation):
            with self.synchronised(last):
                with precision.autocast(), self.recording():
                    loss = self.workload.loss(self.model, part)
                mean = wide(loss) / weight if real else wide(loss) * 0.0
                (mean * (precision.scale * self.mean_over())).backward()  # type: ignore[no-untyped-call]
            total += mean.detach()
        self.settle()
        return total / self.mesh.tensor  # ranks that share each product all have the whole loss

    def recording(self) -> AbstractContextManager[Any]:
        """Note what the first microbatch keeps in which module; a compiled model is not looked into."""
        if self.contributions is not None or self.options.get("compile", "off") != "off":
            return nullcontext()
        self.contributions = Contributions.of(self.plain)
        return self.contributions.recording()

    def mean_over(self) -> int:
        """By how many the collective reduction of gradients divides; the loss is multiplied by it."""
        return self.batch_degree

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """The context of a microbatch; only the last one need reduce gradients over ranks."""
        return nullcontext()

    def settle(self) -> None:
        """Called when the gradients of all microbatches are there."""

    def whole(self) -> nn.Module | None:  # noqa: D102
        return self.plain if self._replicated() else None


def contiguous(model: nn.Module) -> None:
    """Lay whole parameters out in torch's own order: `fully_shard`, and stages that send, take no channels_last."""
    for parameter in model.parameters():
        if not is_sharded(parameter):
            parameter.data = parameter.data.contiguous()


def collected(mine: Tensors) -> Tensors:
    """The tensors of all ranks by name, on rank 0, one after the other; empty on other ranks."""
    group, rank = side_group(), dist.get_rank()
    told: list[Any] | None = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(
        [(name, t.shape, t.dtype) for name, t in mine.items()], told, dst=0, group=group
    )
    if told is None:
        for tensor in mine.values():
            dist.send(tensor.contiguous(), dst=0, group=group)
        return {}
    found = dict(mine)
    for source, entries in enumerate(told[1:], 1):
        for name, shape, dtype in entries:
            found[name] = torch.empty(shape, dtype=dtype)
            dist.recv(found[name], src=source, group=group)
    return found


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank, sharing its memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether it is a DTensor; importing that class takes longer than training a small model on one rank begins."""
    return hasattr(tensor, "placements")
