"""The base class of every parallelism strategy.

A strategy takes the whole fp32 model, the same on every rank, and owns it from then on. It computes
gradients of the mean loss of a global batch, and knows every parameter by its canonical name. It
gives whole tensors back for checkpoints and evaluation. All strategies compute the same function.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from search_spaces.errors import UsageError
from search_spaces.knobs import Option
from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import COMPILE
from workers.batches import Batch, BatchShare
from workers.device.peak_memory import Contributions
from workers.device.precision import Precision, wide
from workers.workload import ParallelPlan, Trainable

from .mesh import Mesh, Tensors, collected, local, sent, sum_over


class Strategy(ABC):
    """How the ranks of a mesh train one model.

    A strategy is one file of `strategies/`. The class variables below, `degrees` and `imitate` say
    all that the search space, the trainer, the memory estimate and the tests need. All ranks call
    every method, in the same order.

    Args:
        mesh: this rank's place among the others.
        workload: the workload that is trained.
        device: of this rank.
        values: of the trial's options; read one with `Option.value`.

    Attributes:
        plain: the model as it was given, with the parameters and buffers of this rank alone.
        model: the module that computes the forward pass of this rank's rows.
        contributions: memory by module of this rank, if the strategy measures it.
        axis: the axis of the mesh on which the ranks lie.
        degree: the option that gives the length of the axis; other ranks hold replicas.
            None if all ranks lie on the axis.
        needs: when the strategy can be used.
        options: the options that it reads; those with choices are tuned if the strategy is.
        replicated: whether every rank holds the whole model and the whole gradient.
        apart: whether ranks hold different parameters, which rank 0 must collect.
    """

    plain: nn.Module
    model: nn.Module
    contributions: Contributions | None = None
    needs: ClassVar[StrategyNeeds]
    axis: ClassVar[str] = "data"
    degree: ClassVar[Option | None] = None
    options: ClassVar[tuple[Option, ...]] = ()
    replicated: ClassVar[bool] = False
    apart: ClassVar[bool] = False

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
    def imitate(cls, model: nn.Module, plan: ParallelPlan, mesh: Mesh) -> int:
        """Cut a model of fake tensors to the part of one rank, for the memory estimate.

        The estimate itself imitates the `shard` axis of the mesh.

        Returns:
            Bytes of the parameters that are left whole in forward but sharded between updates.
        """
        return 0

    @property
    def build_device(self) -> torch.device:
        """Where the model that `wrap` takes is built.

        The CPU if ranks hold parts of the model, so that no GPU ever holds the whole.
        """
        return self.device if self.replicated else torch.device("cpu")

    @abstractmethod
    def wrap(self, model: nn.Module) -> None:
        """Take the model over. It lies on `build_device` and is the same on every rank."""

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by canonical name: whole ones, or its parts as DTensors."""
        return dict(self.plain.named_parameters())

    def _held(self) -> Tensors:
        # With the buffers that a checkpoint keeps.
        kept = nn.Module.state_dict(self.plain).keys()
        buffers = {name: one for name, one in self.plain.named_buffers() if name in kept}
        return {**self.parameters(), **buffers}

    def gradients(self, share: BatchShare, precision: Precision) -> Tensor:
        """Compute the gradients of scale * (loss of the global batch / its weight).

        Each rank computes those of its own parameters.

        Args:
            share: this rank's share of the global batch, see `share_of`.
            precision: of the forward pass.

        Returns:
            This rank's share of the mean loss, scalar and detached. The shares add up to the mean.
        """
        total = torch.zeros((), device=self.device)
        for index, rows in enumerate(share.parts, 1):
            part = rows.to(self.device)
            with self.synchronised(last=index == len(share.parts)):
                with precision.autocast(), self._recording():
                    loss = self.workload.loss(self.model, part)
                mean = share.mean(wide(loss))
                scaled = mean * (precision.scale * self.mean_over())
                scaled.backward()  # type: ignore[no-untyped-call]
            total += mean.detach()
        self.finish_gradients()
        return total / self.mesh.tensor  # ranks that share each product all have the whole loss

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the gradient of the whole model, over all ranks; a scalar."""
        by_copies: dict[int, list[Tensor]] = {}
        for name, parameter in self.parameters().items():
            if parameter.grad is not None:
                by_copies.setdefault(self.copies(name, parameter), []).append(local(parameter.grad))
        squares = torch.zeros((), device=self.device)
        for copies, grads in by_copies.items():
            norms = torch._foreach_norm(grads)
            squares += torch.stack([wide(norm) for norm in norms]).square().sum() / copies
        if self.mesh.world_size > 1 and not self.replicated:
            dist.all_reduce(squares)
        return squares.sqrt()

    def copies(self, name: str, parameter: nn.Parameter) -> int:
        """How many ranks hold the same part of a parameter; 1 if the model is replicated."""
        if self.replicated:
            return 1
        copies = self.mesh.world_size // self.mesh.pipeline
        if isinstance(parameter, DTensor):
            axes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
            copies //= math.prod(size for size, placed in axes if placed.is_shard())
        return copies

    def scale_gradients(self, factor: float | Tensor) -> None:
        """Multiply every gradient in place by a number or a scalar."""
        grads = [local(p.grad) for p in self.parameters().values() if p.grad is not None]
        torch._foreach_mul_(grads, factor)

    def sum_over_replicas(self, group: dist.ProcessGroup) -> None:
        """Sum this rank's gradients over the data-parallel replicas, the ranks of `group`."""
        if self.mesh.data > 1:
            grads = [p.grad for p in self.parameters().values() if p.grad is not None]
            sum_over(group, [local(grad) for grad in grads])

    def state(self, optimizer: Optimizer | None = None) -> dict[str, Tensors]:
        """Whole tensors on the CPU of rank 0, by kind and name; none on other ranks.

        Args:
            optimizer: of this rank's parameters.

        Returns:
            Kind "": parameters and buffers. Other kinds: the optimizer's, such as "exp_avg".
        """
        held: dict[tuple[str, str], Tensor] = {("", n): one for n, one in self._held().items()}
        entries = optimizer.state if optimizer else {}
        held |= {
            (kind, name): torch.as_tensor(value)
            for name, parameter in self.parameters().items()
            for kind, value in sorted(entries.get(parameter, {}).items())
            if isinstance(value, (Tensor, int))
        }
        mine = {}
        for (kind, name), tensor in held.items():
            whole = self.gather(tensor.detach(), name)
            if self.sends(name):
                mine[kind, name] = whole.cpu()
        found: dict[str, Tensors] = {"": {}}
        if self.apart:
            mine = collected(mine)
        for (kind, name), whole in mine.items():
            found.setdefault(kind, {})[name] = whole
        return found

    def load(
        self, state: Mapping[str, Mapping[str, Tensor]], optimizer: Optimizer | None = None
    ) -> None:
        """Overwrite this rank's parameters, buffers and optimizer state with those of rank 0.

        Args:
            state: whole tensors, see `state`; other ranks may pass anything.
            optimizer: of this rank's parameters.

        Raises:
            UsageError: a parameter or buffer is missing.
        """
        held = self._held()
        given = optimizer.param_groups if optimizer else []
        groups = {p: group for group in given for p in group["params"]}
        missing = set(held)
        flat = {(kind, name): t for kind, found in state.items() for name, t in found.items()}
        with torch.no_grad():
            for (kind, name), whole in sent(flat):
                like = held.get(name)
                if like is not None and not kind:
                    like.copy_(self.scatter(whole, like, name))
                    missing.discard(name)
                elif optimizer and like is not None and like in groups:
                    optimizer.state[like][kind] = self._moment(whole, like, name, groups[like])
        if missing:
            raise UsageError(f"the weights to load have no {', '.join(sorted(missing))}")

    def _moment(self, whole: Tensor, like: Tensor, name: str, group: Mapping[str, Any]) -> Tensor:
        """This rank's part of a state tensor of a parameter."""
        if whole.shape == like.shape:  # a fused step needs both in the same memory format
            return torch.empty_like(like).copy_(self.scatter(whole, like, name))
        counts_steps = not whole.ndim and not (group.get("fused") or group.get("capturable"))
        return whole.to("cpu" if counts_steps else like.device, copy=True)

    def sends(self, name: str) -> bool:
        """Whether a checkpoint takes this rank's tensors of that name."""
        return self.mesh.rank == 0

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """The whole of a parameter (or a tensor of its shape) from this rank's part."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def scatter(self, whole: Tensor, like: Tensor, name: str) -> Tensor:
        """This rank's part of a whole parameter (or a tensor of its shape), placed as `like`."""
        if whole.shape != like.shape:  # a count of steps; a weight of another shape torch refuses
            return whole
        if not isinstance(like, DTensor):
            return whole.to(like.device, like.dtype, copy=True)
        moved = whole.to(like.device, like.dtype)
        return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)

    def close(self, failed: bool = False) -> None:  # noqa: B027 (most start nothing)
        """Free what the strategy started; other ranks may be gone if the attempt `failed`."""

    @property
    def batch_degree(self) -> int:
        """Among how many ranks (or groups of ranks) the rows of a batch are shared out."""
        return self.mesh.data * self.mesh.shard

    def share_of(
        self, batch: Batch, accumulation: int = 1, *, bucketed: bool = False
    ) -> BatchShare:
        """This rank's share of a global batch, on the CPU; see `BatchShare.of`."""
        return BatchShare.of(
            self.workload,
            batch,
            count=self.batch_degree,
            index=self.mesh.coordinate("data") * self.mesh.shard + self.mesh.coordinate("shard"),
            accumulation=accumulation,
            bucketed=bucketed,
        )

    def wrap_own(self, model: nn.Module) -> None:
        """Like `wrap`, for a loop that computes the loss by any methods of the model."""
        self.wrap(model)

    def joined(self, loss: Tensor) -> Tensor:
        """The loss of a model that `wrap_own` took, for backward in the context `synchronised`."""
        return loss

    def _recording(self) -> AbstractContextManager[Any]:
        """Record the activations of the first microbatch by module, unless it is compiled."""
        if self.contributions is not None or COMPILE.value(self.values) != "off":
            return nullcontext()
        self.contributions = Contributions(self.plain)
        return self.contributions.recording()

    def mean_over(self) -> int:
        """The divisor of the collective reduction of gradients; the loss is multiplied by it."""
        return self.batch_degree

    def synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """The context of a microbatch; only the last one need reduce gradients over ranks."""
        return nullcontext()

    def finish_gradients(self) -> None:
        """Called after the backward pass of the last microbatch; each row is then there once."""
        for parameter in self.plain.parameters():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
