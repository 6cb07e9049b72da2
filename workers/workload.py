"""The face of every workload: the model, its data, its metrics and its default space.

A workload knows nothing of Ray, of suggesters, or of how it is parallelised. One that is trained by gradient
descent derives from `TrainedWorkload` and leaves the loop, precision, parallelism, checkpoints and limits to
`workers.training.trainer.train`; any other derives from `Workload` and writes `run` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Space
from search_spaces.errors import UsageError
from search_spaces.hardware import Hardware

from .protocol import Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from search_spaces.knobs import Dropped

    from .context import Context

    Batch = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class ParallelPlan:
    """How a model may be taken apart, as plain data beside the model file.

    Args:
        layers: dotted names of the repeated blocks, in order of execution; `fsdp` wraps them, activation
            checkpointing recomputes them, `pipeline` cuts between them.
        tensor: dotted name (with `*` for a layer's index) of a Linear or Embedding to "column", "row" or "vocabulary"
            for tensor parallelism, of a norm to "sequence"; "column:3" where three matrices lie on top of each other,
            such as query, key and value.
        num_heads: attention heads, which the tensor degree divides; 0 where the model has none.
        embeddings: dotted names of large embeddings that a parameter server may hold.
        stages: dotted name of a function `(model, num_stages) -> list[nn.Module]` that cuts the model for the
            pipeline, as "module:function", or None where it cannot be cut. A stage takes what the one before returned
            (a tensor or several, nothing at the first) and by keyword those tensors of the batch that its forward
            names; the last returns the model's output.
    """

    layers: tuple[str, ...] = ()
    tensor: Mapping[str, str] = field(default_factory=dict)
    num_heads: int = 0
    embeddings: tuple[str, ...] = ()
    stages: str | None = None


class Workload(ABC):
    """One thing that can be run under a configuration.

    Args:
        params: the active parameters of the configuration.
        data: the `data` section: `name` and what that data set needs (`dir`).
        fixed: the `fixed` section: options that are not tuned.
        seed: of everything random.

    Where `trains_on_valid` is set, `data.with_valid: true` adds the validation data to the training data.

    `metrics` declares every metric that a run reports or returns.

    `smallest` holds a `data` and a `fixed` section with which a run takes about a second, for the conformance tests.

    Options are looked up in `params`, then `fixed`, then the workload's defaults (`self.option(name)`).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    goals: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[Metric, ...]] = ()
    last_report_counts: ClassVar[bool] = False
    trains_on_valid: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {}
    smallest: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(
        self,
        params: Mapping[str, Any],
        data: Mapping[str, Any],
        fixed: Mapping[str, Any],
        *,
        seed: int = 0,
    ) -> None:
        self.params, self.data, self.fixed, self.seed = params, data, fixed, seed

    def option(self, name: str) -> Any:
        """The value of an option: tuned, else fixed, else the default; KeyError where it has none."""
        if name in self.params:
            return self.params[name]
        return self.fixed[name] if name in self.fixed else self.defaults[name]

    @classmethod
    @abstractmethod
    def space(cls, hardware: Hardware) -> Space:
        """Every parameter that can be tuned, with its default, as far as this hardware can run it."""

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[Dropped]:
        """The values that `space` leaves out on this hardware, each with the reason."""
        return ()

    @classmethod
    @abstractmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Raise DataError or UsageError where the data or fixed options cannot be used; cheap, imports no torch."""

    @abstractmethod
    def run(self, context: Context) -> Mapping[str, float]:
        """Run to the end, reporting through the context, and return the final metrics."""

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write what was trained into the folder `target`: weights in safetensors, and what is needed to use them.

        Args:
            trial: the folder in which the trial ran, with its checkpoints.

        Returns:
            Name of each file that was written, and what it holds.

        Raises:
            UsageError: the folder holds nothing that was trained, or the workload trains nothing.
        """
        raise UsageError(f"the workload {self.name} has nothing to export")


class Trainable(Workload):
    """What the trainer, the strategies and the estimate need of a workload; see `TrainedWorkload`.

    A batch is a mapping of tensors that all have the batch as dim 0. It is the same on every rank: data-parallel
    strategies take their rows of it, so that the number of ranks cannot change what is computed.
    """

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A new model in fp32 on the default device (or `meta`), its weights a function of the seed alone."""

    @abstractmethod
    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """The global batches of an epoch, on the CPU, a function of (seed, epoch) alone."""

    def train_batches_from(self, epoch: int, index: int) -> Iterator[Batch]:
        """The batches of an epoch from the one of that index on; override where the others need not be made."""
        return islice(self.train_batches(epoch), index, None)

    @abstractmethod
    def inputs(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """The tensors that the model's forward takes."""

    @abstractmethod
    def criterion(self, output: Any, batch: Batch) -> torch.Tensor:
        """Sum of the loss over the items of the batch, scalar; the trainer divides by the global `weight`."""

    @abstractmethod
    def weight(self, batch: Batch) -> float:
        """How many items (tokens, images) the loss of this batch is a sum over."""

    @abstractmethod
    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        """Validation metrics; the trainer has put the model in eval mode under no_grad. Called on rank 0."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Summed loss of a batch; override where output and criterion cannot be parted."""
        return self.criterion(model(*self.inputs(batch)), batch)

    def learning_rate(self, update: int) -> float:
        """Learning rate of the update, counted from 1."""
        return float(self.option("learning_rate"))

    def canonical(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What a checkpoint holds, given the model's parameters and buffers, or what an optimizer keeps of each.

        Override where configurations keep the same weights in different forms, so that any checkpoint loads in any.
        """
        return dict(tensors)

    def native(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The inverse of `canonical` for this configuration's model."""
        return dict(tensors)

    def plan(self, model: nn.Module) -> ParallelPlan:
        """How the model may be taken apart."""
        return ParallelPlan()
