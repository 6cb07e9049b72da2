"""The base class of every parallelism strategy, and of those with one module.

A strategy takes the whole fp32 model, the same on every rank, and owns it from then on. It computes
gradients of the mean loss of a global batch, and knows every parameter by its canonical name. It
gives whole tensors back for checkpoints and evaluation. All strategies compute the same function.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import distribute_tensor
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs import Option
from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import COMPILE
from workers.data.batch import Batch, BatchShare
from workers.device.peak_memory import Contributions
from workers.device.precision import Precision, wide
from workers.workload import ParallelPlan, Trainable

from .mesh import Mesh
from .transfers import (
    Part,
    Tensors,
    by_key,
    collected,
    everything,
    is_sharded,
    load_moments,
    local,
    own_part,
    sent,
    sum_over,
)


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
        shares_state: whether each rank keeps the optimizer state of other parameters.
    """

    held_parameters: dict[str, nn.Parameter]
    held_buffers: Tensors
    needs: ClassVar[StrategyNeeds]
    axis: ClassVar[str] = "data"
    degree: ClassVar[Option | None] = None
    options: ClassVar[tuple[Option, ...]] = ()
    replicated: ClassVar[bool] = False
    apart: ClassVar[bool] = False
    shares_state: bool = False

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
        """Degrees of the mesh's axes for this many ranks; UsageError if they cannot be used."""
        name = cls.__module__.rpartition(".")[2]
        least = max(1, cls.needs.min_ranks)
        if num_ranks < least or num_ranks > (cls.needs.max_ranks or num_ranks):
            raise UsageError(
                f"parallelism {name} runs on {least} rank"
                f"{'s or more' if least > 1 else ''}, and this trial has {num_ranks}: "
                "the parameter `ranks` and the number of workers say how many"
            )
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

    @property
    def build_device(self) -> torch.device:
        """Where the model that `wrap` takes is built; see `workers.training.setup.build_model`.

        The CPU if ranks hold parts of the model, so that no GPU ever holds the whole.
        """
        return self.device if self.replicated else torch.device("cpu")

    @abstractmethod
    def wrap(self, model: nn.Module) -> None:
        """Take the model over. It lies on `build_device` and is the same on every rank."""

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by canonical name: whole ones, or its parts as DTensors."""
        return self.held_parameters

    def buffers(self) -> Tensors:
        """This rank's buffers by canonical name."""
        return self.held_buffers

    @abstractmethod
    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """Compute the gradients of scale * (loss of the global batch / its weight).

        Each rank computes those of its own parameters.

        Args:
            share: this rank's share of the global batch, see `share_of`.
            precision: of the forward pass.

        Returns:
            This rank's share of the mean loss, scalar and detached. The shares add up to the mean.
        """

    def whole(self) -> nn.Module | None:
        """The model as it was given, for evaluation; None if ranks hold parts of it."""
        return None

    def called_together(self) -> nn.Module | None:
        """The model for evaluation, which all ranks call equally often, each with rows of its own.

        None if the ranks cannot call it like that. Ranks of one `tensor` axis use the same rows.
        """
        return self.whole()

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient of the whole model, over all ranks; a scalar."""
        squares = self._local_squares()
        if self.mesh.world_size > 1 and not self.replicated:
            dist.all_reduce(squares)
        return squares.sqrt()

    def scale_gradients(self, factor: float | Tensor) -> None:
        """Multiply every gradient in place by a number or a scalar."""
        grads = [local(p.grad) for p in self.parameters().values() if p.grad is not None]
        torch._foreach_mul_(grads, factor)

    def state(self, part: Part = everything) -> Tensors:
        """Whole parameters and buffers by name, on the CPU of rank 0; empty on other ranks.

        Args:
            part: which of them, by name.
        """
        gathered: Tensors = {}
        for name, whole in self._wholes(part):
            if self._collects:
                gathered[name] = whole.cpu()
        return self.merge(gathered)

    def everywhere(self, parts: Sequence[Part]) -> Iterator[tuple[str, Tensor]]:
        """Each parameter and buffer of the model by name, whole, on every rank, one at a time.

        Args:
            parts: rank 0 holds one part at a time if ranks hold different parameters.
        """
        for part in parts:
            yield from sent(self.state(part)) if self.apart else self._wholes(part)

    def _wholes(self, part: Part) -> Iterator[tuple[str, Tensor]]:
        """Each parameter and buffer of this rank, whole; other ranks must go on as far."""
        for name, parameter in self.parameters().items():
            if part(name):
                yield name, self.gather(parameter.detach(), name)
        for name, buffer in self.buffers().items():
            if part(name):
                yield name, buffer.detach()

    def load(self, state: Mapping[str, Tensor], *, partly: bool = False) -> None:
        """Overwrite parameters and buffers with the whole tensors of rank 0.

        Args:
            state: by name; other ranks may pass anything.
            partly: whether tensors may be missing; they stay as they are.

        Raises:
            UsageError: a tensor is missing.
        """
        parameters = self.parameters()
        missing = {**parameters, **self.buffers()}
        with torch.no_grad():
            for name, whole in sent(state):
                held = missing.pop(name, None)
                if name in parameters:
                    parameter = parameters[name]
                    parameter.copy_(self.scatter(whole, parameter, name))
                elif held is not None:
                    held.copy_(whole)
        if missing and not partly:
            raise UsageError(f"the weights to load have no {', '.join(sorted(missing))}")

    def optimizer_state(self, optimizer: Optimizer, part: Part = everything) -> dict[str, Tensors]:
        """Whole state tensors by key and parameter, on the CPU of rank 0; empty on other ranks.

        Args:
            optimizer: of this rank's parameters.
            part: of which parameters, by name.
        """
        flat: Tensors = {}
        held = own_part(optimizer).state
        for name, parameter in self.parameters().items():
            if not part(name):
                continue
            for key, value in sorted(held.get(parameter, {}).items()):
                whole = self.gather(value.detach(), name) if isinstance(value, Tensor) else None
                if whole is not None and (self._collects or self.shares_state):
                    flat[f"{name}|{key}"] = whole.cpu()
        return by_key(collected(flat) if self.shares_state else self.merge(flat))

    def load_optimizer_state(
        self, optimizer: Optimizer, state: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Overwrite the optimizer's state with the whole tensors of rank 0.

        Args:
            optimizer: of this rank's parameters.
            state: by key and parameter; other ranks may pass anything.
        """
        flat = {f"{name}|{key}": t for key, tensors in state.items() for name, t in tensors.items()}
        load_moments(own_part(optimizer), self.parameters(), sent(flat), self.scatter)

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
        """The whole of a parameter (or a tensor of its shape) from this rank's part."""
        return tensor.full_tensor() if is_sharded(tensor) else tensor

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """This rank's part of a whole parameter (or a tensor of its shape), placed as `like`."""
        if not is_sharded(like):
            return whole.to(like.device, like.dtype, copy=True)
        moved = whole.to(like.device, like.dtype)
        return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)

    def sum_over_replicas(self, group: dist.ProcessGroup) -> None:
        """Sum this rank's gradients over the data-parallel replicas, the ranks of `group`."""
        if self.mesh.data > 1:
            sum_over(
                group, [local(p.grad) for p in self.parameters().values() if p.grad is not None]
            )

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

    def share_of(
        self, batch: Batch, accumulation: int = 1, *, bucketed: bool = False
    ) -> BatchShare:
        """This rank's share of a global batch, on the CPU; see `BatchShare.of`."""
        return BatchShare.of(
            self.workload,
            batch,
            count=self.batch_degree,
            index=self.batch_rank,
            accumulation=accumulation,
            bucketed=bucketed,
        )

    def microbatches(self, share: BatchShare) -> Iterator[tuple[Batch, bool]]:
        """The parts of this rank's share on its device, with (is last)."""
        for index, part in enumerate(share.parts, 1):
            yield part.to(self.device), index == len(share.parts)

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


class ModuleStrategy(Strategy):
    """A strategy with one module that computes the forward pass of this rank's rows.

    `model` is the module that is called, `plain` the model as it was given.
    """

    contributions: Contributions | None = None
    model: nn.Module
    plain: nn.Module

    def parameters(self) -> dict[str, nn.Parameter]:
        """See `Strategy`."""
        return dict(self.plain.named_parameters())

    def buffers(self) -> Tensors:
        """See `Strategy`."""
        kept = nn.Module.state_dict(self.plain).keys()
        return {name: buffer for name, buffer in self.plain.named_buffers() if name in kept}

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """See `Strategy`."""
        total = torch.zeros((), device=self.device)
        for part, last in self.microbatches(share):
            with self.synchronised(last):
                with precision.autocast(), self.recording():
                    loss = self.workload.loss(self.model, part)
                mean = share.mean(wide(loss))
                scaled = mean * (precision.scale * self.mean_over())
                scaled.backward()  # type: ignore[no-untyped-call]
            total += mean.detach()
        self.finish_gradients()
        return total / self.mesh.tensor  # ranks that share each product all have the whole loss

    def wrap_own(self, model: nn.Module) -> None:
        """Like `wrap`, for a loop that computes the loss by any methods of the model."""
        self.wrap(model)

    def joined(self, loss: Tensor) -> Tensor:
        """The loss of a model that `wrap_own` took, for backward in the context `synchronised`."""
        return loss

    def recording(self) -> AbstractContextManager[Any]:
        """Record the activations of the first microbatch by module, unless it is compiled."""
        if self.contributions is not None or COMPILE.value(self.values) != "off":
            return nullcontext()
        self.contributions = Contributions(self.plain)
        return self.contributions.recording()

    def memory_by_module(self, state_bytes: Callable[[Tensor], int]) -> dict[str, int] | None:
        """See `Strategy`."""
        recorded = self.contributions
        return recorded.table(self.parameters(), state_bytes) if recorded else None

    def mean_over(self) -> int:
        """The divisor of the collective reduction of gradients; the loss is multiplied by it."""
        return self.batch_degree

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """The context of a microbatch; only the last one need reduce gradients over ranks."""
        return nullcontext()

    def finish_gradients(self) -> None:
        """Called after the backward pass of the last microbatch; each row is then there once."""
        for parameter in self._looked_up:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()

    @cached_property
    def _looked_up(self) -> list[nn.Parameter]:
        """The parameters whose gradients are sparse."""
        sparse = [module for module in self.plain.modules() if getattr(module, "sparse", False)]
        return [parameter for module in sparse for parameter in module.parameters()]

    def whole(self) -> nn.Module | None:
        """See `Strategy`."""
        return self.plain if self.replicated else None

    def called_together(self) -> nn.Module | None:
        """See `Strategy`."""
        return self.plain
