"""The base class of every parallelism strategy.

A strategy takes the whole fp32 model, the same on every rank, and owns it from then on. It computes
gradients of the mean loss of a global batch, and knows every parameter by its canonical name. It
gives whole tensors back for checkpoints and evaluation. All strategies compute the same function.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs import Option
from search_spaces.knobs.parallelism import StrategyNeeds
from workers.device.precision import Precision, wide
from workers.workload import Batch, ParallelPlan, Trainable

from .mesh import Mesh, side_group

Tensors = dict[str, Tensor]


class Strategy(ABC):
    """How the ranks of a mesh train one model.

    A strategy is one file of `strategies/`. The class variables below, `degrees`, `batch_shares`
    and `imitate` say all that the search space, the trainer, the memory estimate and the tests
    need. All ranks call every method, in the same order.

    Args:
        mesh: this rank's place among the others.
        workload: the workload that is trained.
        device: of this rank.
        values: of the trial's options; read one with `Option.value`.

    Attributes:
        held_parameters, held_buffers: of this rank, by canonical name; set by `wrap`.
        axis: the axis of the mesh on which the ranks lie.
        degree: the option that gives the length of the axis; other ranks hold replicas.
            None if all ranks lie on the axis.
        needs: when the strategy can be used.
        options: the options that it reads; those with choices are tuned if the strategy is.
        replicated: whether every rank holds the whole model and the whole gradient.
        apart: whether ranks hold different parameters, which rank 0 must collect.
        spends_process: whether torch keeps state in the process that another attempt cannot use.
    """

    held_parameters: dict[str, nn.Parameter]
    held_buffers: Tensors
    needs: ClassVar[StrategyNeeds]
    axis: ClassVar[str] = "data"
    degree: ClassVar[Option | None] = None
    options: ClassVar[tuple[Option, ...]] = ()
    replicated: ClassVar[bool] = False
    apart: ClassVar[bool] = False
    spends_process: ClassVar[bool] = False

    def __init__(
        self,
        mesh: Mesh,
        workload: Trainable,
        device: torch.device,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.mesh = mesh
        self.workload = workload
        self.device = device
        self.values = values or {}

    @classmethod
    def degrees(cls, num_ranks: int, values: Mapping[str, Any]) -> dict[str, int]:
        """Degrees of the mesh's axes for so many ranks; UsageError if they cannot be used."""
        if num_ranks < cls.needs.min_ranks or num_ranks > (cls.needs.max_ranks or num_ranks):
            raise UsageError(f"{cls.__name__} cannot run on {num_ranks} ranks")
        degree = int(cls.degree.value(values)) if cls.degree else num_ranks
        if degree < 1 or num_ranks % degree:
            raise UsageError(f"{cls.axis} degree {degree} must divide the {num_ranks} ranks")
        return {"data": num_ranks // degree, cls.axis: degree}

    @classmethod
    def batch_shares(cls, mesh: Mesh) -> int:
        """Among how many ranks (or groups of ranks) the rows of a batch are shared out."""
        return mesh.data * mesh.shard

    @classmethod
    def imitate(cls, model: nn.Module, plan: ParallelPlan, mesh: Mesh) -> int:
        """Cut a model of fake tensors to the part of one rank, for the memory estimate.

        The estimate itself imitates pipeline stages and the `shard` axis of the mesh.

        Returns:
            Bytes of the parameters that are left whole in forward but sharded between updates.
        """
        return 0

    @abstractmethod
    def wrap(self, model: nn.Module) -> None:
        """Take the model over. It lies on this rank's device and is the same on every rank."""

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by canonical name: whole ones, or its parts as DTensors."""
        return self.held_parameters

    def buffers(self) -> Tensors:
        """This rank's buffers by canonical name."""
        return self.held_buffers

    @abstractmethod
    def gradients(
        self, batch: Batch, weight: float, precision: Precision, accumulation: int
    ) -> Tensor:
        """Compute the gradients of scale * (loss of the global batch / `weight`).

        Each rank computes those of its own parameters.

        Args:
            batch: the global batch, on the CPU.
            weight: of the batch.
            precision: of the forward pass.
            accumulation: how many microbatches the batch is computed in.

        Returns:
            This rank's share of the mean loss, scalar and detached. The shares add up to the mean.
        """

    def whole(self) -> nn.Module | None:
        """On rank 0 the model as it was given, for evaluation; None if ranks hold parts of it."""
        return None

    def grad_norm(self) -> float:
        """Euclidean norm of the gradient of the whole model, over all ranks."""
        squares = self._local_squares()
        if self.mesh.world_size > 1 and not self.replicated:
            dist.all_reduce(squares)
        return float(squares.sqrt().item())

    def scale_gradients(self, factor: float) -> None:
        """Multiply every gradient in place."""
        grads = [local(p.grad) for p in self.parameters().values() if p.grad is not None]
        torch._foreach_mul_(grads, factor)

    def state(self) -> Tensors:
        """Whole parameters and buffers by name, on the CPU of rank 0; empty on other ranks."""
        gathered: Tensors = {}
        for name, parameter in self.parameters().items():
            whole = self.gather(parameter.detach(), name)
            if self._collects:
                gathered[name] = whole
        gathered |= {name: b.detach().cpu() for name, b in self.buffers().items()}
        return self.merge(gathered)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Overwrite parameters and buffers with whole tensors, which every rank has."""
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                parameter.copy_(self.scatter(state[name], parameter, name))
            for name, buffer in self.buffers().items():
                buffer.copy_(state[name])

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Tensors]:
        """Whole state tensors by key and parameter, on the CPU of rank 0; empty on other ranks."""
        flat: Tensors = {}
        for name, parameter in self.parameters().items():
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                whole = self.gather(value.detach(), name) if isinstance(value, Tensor) else None
                if whole is not None and self._collects:
                    flat[f"{name}|{key}"] = whole
        result: dict[str, Tensors] = {}
        for joined, tensor in self.merge(flat).items():
            name, _, key = joined.rpartition("|")
            result.setdefault(key, {})[name] = tensor
        return result

    def load_optimizer_state(
        self, optimizer: Optimizer, state: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Overwrite the optimizer's state with whole tensors, which every rank has."""
        groups = [g for g in optimizer.param_groups if g.get("fused") or g.get("capturable")]
        fused = {p for g in groups for p in g["params"]}
        for name, parameter in self.parameters().items():
            entries = {}
            mine = {key: tensors[name] for key, tensors in state.items() if name in tensors}
            for key, value in mine.items():
                if value.shape != parameter.shape:  # a step count
                    device = parameter.device if parameter in fused else "cpu"
                    entries[key] = value.to(device, copy=True)
                else:
                    part = self.scatter(value, parameter, name)
                    # A fused step needs parameter and state in the same memory format.
                    like = part if is_sharded(part) else parameter.detach()
                    entries[key] = torch.empty_like(like, dtype=part.dtype).copy_(part)
            if entries:
                optimizer.state[parameter] = entries

    def merge(self, mine: Tensors) -> Tensors:
        """The tensors of all ranks by name, on rank 0; empty on other ranks.

        Here every rank holds all of them.
        """
        return mine if self.mesh.rank == 0 else {}

    @property
    def _collects(self) -> bool:
        """Whether this rank keeps gathered tensors; others hold one whole tensor at a time."""
        return self.mesh.rank == 0 or self.apart

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """The whole of a parameter (or a tensor of its shape) from this rank's part, on the CPU."""
        return (tensor.full_tensor() if is_sharded(tensor) else tensor).cpu()

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """This rank's part of a whole parameter (or a tensor of its shape), placed as `like`."""
        if not is_sharded(like):
            return whole.to(like.device, like.dtype, copy=True)
        moved = whole.to(like.device, like.dtype)
        return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)

    def sum_over_replicas(self, group: dist.ProcessGroup) -> None:
        """Sum this rank's gradients over the data-parallel replicas, the ranks of `group`."""
        if self.mesh.data > 1:
            grads = [local(p.grad) for p in self.parameters().values() if p.grad is not None]
            for work in [dist.all_reduce(grad, group=group, async_op=True) for grad in grads]:
                work.wait()

    def close(self, failed: bool = False) -> None:  # noqa: B027 (most start nothing)
        """Free what the strategy started; other ranks may be gone if the attempt `failed`."""

    def memory_by_module(self, state_bytes: Callable[[Tensor], int]) -> dict[str, int] | None:
        """Bytes of the largest modules of this rank; None if the strategy does not measure them.

        Args:
            state_bytes: the bytes of optimizer state of a parameter.
        """
        return None

    @property
    def batch_degree(self) -> int:
        """Among how many ranks (or groups of ranks) the rows of a batch are shared out."""
        return self.batch_shares(self.mesh)

    @property
    def batch_rank(self) -> int:
        """The index of the share that this rank computes."""
        return self.mesh.coordinate("data") * self.mesh.shard + self.mesh.coordinate("shard")

    def rows(self, batch: Batch, degree: int, index: int) -> tuple[Batch, bool]:
        """Share `index` of the rows of a batch, and whether it is real.

        A dummy row stands for an empty share.
        """
        total = len(next(iter(batch.values())))
        begin = total * index // degree
        end = total * (index + 1) // degree
        real = end > begin
        rows = slice(begin, end) if real else slice(0, 1)
        return {key: value[rows] for key, value in batch.items()}, real

    def microbatches(self, batch: Batch, accumulation: int) -> Iterator[tuple[Batch, bool, bool]]:
        """This rank's rows in at most `accumulation` parts on its device, with (is real, is last).

        Every rank gets the same number of parts, so that collective calls stay in step.
        """
        total = len(next(iter(batch.values())))
        count = max(1, min(accumulation, total // self.batch_degree))
        mine, real = self.rows(batch, self.batch_degree, self.batch_rank)
        for index in range(count):
            part, _ = self.rows(mine, count, index)
            on_device = {k: v.to(self.device, non_blocking=True) for k, v in part.items()}
            yield on_device, real, index == count - 1

    def _local_squares(self) -> Tensor:
        """Sum of squares of this rank's gradients, each divided by the number of its copies."""
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
        """How many ranks hold the same part of a parameter; 1 if the model is replicated."""
        if self.replicated:
            return 1
        copies = self.mesh.world_size // self.mesh.pipeline
        if is_sharded(parameter):
            axes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
            copies //= math.prod(size for size, placed in axes if placed.is_shard())
        return copies


def contiguous(model: nn.Module) -> None:
    """Lay whole parameters out contiguously: sharding and pipelining take no channels_last."""
    for parameter in model.parameters():
        if not is_sharded(parameter):
            parameter.data = parameter.data.contiguous()


def collected(mine: Tensors) -> Tensors:
    """The tensors of all ranks by name, on rank 0, sent one by one; empty on other ranks."""
    group = side_group()
    headers: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    mine_headers = [(name, tensor.shape, tensor.dtype) for name, tensor in mine.items()]
    dist.gather_object(mine_headers, headers, dst=0, group=group)
    if headers is None:
        for tensor in mine.values():
            dist.send(tensor.contiguous(), dst=0, group=group)
        return {}
    found = dict(mine)
    for source, entries in enumerate(headers[1:], 1):
        for name, shape, dtype in entries:
            found[name] = torch.empty(shape, dtype=dtype)
            dist.recv(found[name], src=source, group=group)
    return found


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank, sharing its memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a DTensor, without importing that class, which takes long."""
    return hasattr(tensor, "placements")
