"""The base classes of every workload: its model, data, metrics and default space.

A workload does not depend on Ray, on suggesters, or on a parallelism strategy. One that is trained
by gradient descent derives from `workers.workloads._declarative_workload.TrainedWorkload`:
`workers.training.trainer.train` then provides the loop, precision, parallelism, checkpoints and
limits. Any other derives from `Workload` and writes `run` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from search_spaces import Space, UsageError
from search_spaces.hardware import Hardware

from .batches import Batch
from .protocol import Metric

if TYPE_CHECKING:
    import torch
    from torch import nn

    from search_spaces.knobs import DroppedValue
    from search_spaces.knobs.base import KnobSpace

    from .context import Context


@dataclass(frozen=True)
class ParallelPlan:
    """How a model can be split over ranks, as plain data beside the model file.

    Args:
        layers: dotted names of the repeated blocks, in order of execution. `fsdp` wraps them,
            activation checkpointing recomputes them, `pipeline` cuts between them.
        tensor: dotted name (with `*` for a layer's index) to its kind, for tensor parallelism. A
            Linear or an Embedding is "column", "row" or "vocabulary".
            "column:3" means three matrices on top of each other, such as query, key and value.
        num_heads: attention heads, which the tensor degree divides; 0 if the model has none.
        embeddings: dotted names of large embeddings that a parameter server can hold.
        stages: "module:function" of `(model, num_stages) -> list[nn.Module]`, which cuts the model
            for the pipeline; None if it cannot be cut. A stage takes the output of the one before
            (a tensor or several, nothing at the first) and by keyword those tensors of the batch
            that its forward names; the last one returns the model's output.
    """

    layers: tuple[str, ...] = ()
    tensor: Mapping[str, str] = field(default_factory=dict)
    num_heads: int = 0
    embeddings: tuple[str, ...] = ()
    stages: str | None = None


class Workload(ABC):
    """A model and its data, which can be run under a configuration.

    An option is looked up in `params`, then `fixed`, then `defaults` (`self.option(name)`).

    Args:
        params: the active parameters of the configuration.
        data: the `data` section: `name`, and what that data set needs (`dir`).
        fixed: the `fixed` section: options that are not tuned.
        seed: of everything random.

    Attributes:
        metrics: every metric that a run reports or returns; see `metrics_on`.
        last_report_counts: whether the last report is the trial's result, instead of the best.
        defaults: the value of each option that is neither tuned nor fixed.
        smallest: a `data` and a `fixed` section with which a run takes about a second, for tests.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    goals: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[Metric, ...]] = ()
    last_report_counts: ClassVar[bool] = False
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
        self.params = params
        self.data = data
        self.fixed = fixed
        self.seed = seed

    def option(self, name: str) -> Any:
        """The value of an option; KeyError if it is not set and has no default."""
        return {**self.defaults, **self.fixed, **self.params}[name]

    def load_data(self) -> None:  # noqa: B027 (not every workload has data to share)
        """Load what attempts with this configuration share, into a cache of this process.

        It is called in the parent of their processes, which must start no thread that stays.
        """

    @classmethod
    @abstractmethod
    def space(cls, hardware: Hardware) -> Space:
        """The parameters that can be tuned, with defaults and the values that can run here."""

    @classmethod
    def dropped(cls, hardware: Hardware) -> Sequence[DroppedValue]:
        """The values that `space` leaves out on this hardware, each with the reason."""
        return ()

    @classmethod
    def metrics_on(cls, data: Mapping[str, Any]) -> tuple[Metric, ...]:
        """Every metric of a run on a `data` section that `check` accepts; imports no torch."""
        return cls.metrics

    @classmethod
    def on_request(cls, hardware: Hardware) -> KnobSpace:
        """Further parameters, which are tuned only if a configuration names them."""
        from search_spaces.knobs.base import KnobSpace

        return KnobSpace()

    @classmethod
    @abstractmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """Raise DataError or UsageError if data or fixed options are wrong; imports no torch."""

    @classmethod
    def commands(cls) -> Mapping[str, Callable[[Sequence[str]], None]]:
        """Further commands of `python -m workers NAME`; each takes the rest of the command line."""
        return {}

    @abstractmethod
    def run(self, context: Context) -> Mapping[str, float]:
        """Run to the end, reporting through the context, and return the final metrics."""

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the trained weights as safetensors, and the files that are needed to use them.

        Args:
            trial: the folder in which the trial ran, with its checkpoints.
            target: the folder to write to.

        Returns:
            Name of each file that was written, and its content.

        Raises:
            UsageError: the trial has no weights, or the workload trains nothing.
        """
        raise UsageError(f"the workload {self.name} has nothing to export")


class Trainable(Workload):
    """A workload that the trainer can train, the strategies can split and the estimate can measure.

    A batch is a mapping of tensors whose dim 0 is the batch. It is the same on every rank:
    data-parallel strategies take their rows of it, so that the number of ranks does not change the
    result.
    """

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A new model in fp32 on the default device; its weights are a function of the seed."""

    @abstractmethod
    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """The global batches of an epoch, on the CPU; a function of (seed, epoch)."""

    def train_batches_from(self, epoch: int, index: int) -> Iterator[Batch]:
        """The batches of an epoch from `index` on; override it to skip the earlier ones cheaply."""
        return islice(self.train_batches(epoch), index, None)

    def bucketed(self, batch: Batch) -> Batch:
        """The batch padded to one of few shapes, with the same summed loss and weight.

        The trainer asks for it if the model is compiled for a GPU, where each shape may cost a
        graph. Override it if the shapes of batches vary.
        """
        return batch

    @abstractmethod
    def inputs(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """The arguments of the model's forward."""

    @abstractmethod
    def criterion(self, output: Any, batch: Batch) -> torch.Tensor:
        """Sum of the loss over the items of the batch, scalar; the trainer divides by `weight`."""

    @abstractmethod
    def weight(self, batch: Batch) -> float:
        """The number of items (tokens, images) over which the loss of the batch is summed."""

    @abstractmethod
    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        """Validation metrics, on rank 0; the model is in eval mode, under no_grad."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Summed loss of a batch; override it if the model computes its own loss."""
        return self.criterion(model(*self.inputs(batch)), batch)

    def learning_rate(self, update: int) -> float:
        """Learning rate of the update, counted from 1."""
        return float(self.option("learning_rate"))

    def canonical(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The form of these tensors in a checkpoint.

        Override it if configurations keep the same weights in different forms, so that every
        checkpoint loads in every configuration.

        Args:
            tensors: the parameters and buffers, or one state tensor of each parameter.
        """
        return dict(tensors)

    def native(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The inverse of `canonical` for this configuration's whole model."""
        return dict(tensors)

    def plan(self, model: nn.Module) -> ParallelPlan:
        """How the model can be split over ranks."""
        return ParallelPlan()


class SharedEvaluation(Trainable):
    """A workload whose evaluation is shared out among the ranks of a trial.

    Every rank evaluates one share of the validation examples on a model of its own, and rank 0
    combines what they return. A class that overrides `evaluate` is evaluated on rank 0 alone.
    """

    @abstractmethod
    def evaluate_share(
        self, model: nn.Module, device: torch.device, index: int, count: int
    ) -> Mapping[str, Any]:
        """What `combine` needs of share `index` of `count`, as data that can be pickled."""

    @abstractmethod
    def combine(self, shares: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """Validation metrics from all shares in order, on rank 0."""

    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        """See `Trainable`."""
        return self.combine([self.evaluate_share(model, device, 0, 1)])
