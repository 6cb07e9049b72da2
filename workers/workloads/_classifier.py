"""What the classifiers share: examples kept in memory, a held-out part, schedules, and accuracy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from workers.protocol import Metric
from workers.training.metrics import TRAINING_METRICS

from ._data import IntArray, epoch_order, hold_out
from ._declared import Declared
from ._trained import Trained

if TYPE_CHECKING:
    import torch
    from torch import nn

    from workers.context import Context
    from workers.workload import Batch

SCHEDULES = ("constant", "cosine", "one_cycle")
_EVALUATION_BATCH = 250  # so that a request to end need not wait


class Classifier(Declared, Trained):
    """A workload whose batches hold a `label` a row, measured by its accuracy after each epoch.

    `fixed.validation` is the part of the training set that is held out: `accuracy` and `loss` are measured on it, or
    on the test set where it is 0. `test_accuracy` is measured beside it unless `fixed.test` is false; nothing is ever
    chosen by it. The weights of the best of the reports are those that are kept, unless nothing is held out.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", "maximize"),
        Metric("loss", "minimize"),
        Metric("test_accuracy", "maximize"),
        *TRAINING_METRICS,
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "validation": 0.1,
        "test": True,
        "optimized_metric": "accuracy",
        "average_best": 1,
        "label_smoothing": 0.0,
        "rate_schedule": "constant",
        "clip_norm": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
    }

    @abstractmethod
    def num_examples(self, split: str) -> int:
        """How many examples "train" (held-out ones counted in) and "test" have."""

    @abstractmethod
    def examples(
        self, split: str, rows: IntArray, rng_seed: tuple[int, int] | None = None
    ) -> Batch:
        """A batch of these rows of "train" or "test"; changed at random (augmented) where a seed is given."""

    @cached_property
    def rows(self) -> tuple[IntArray, IntArray]:
        """Rows of the training set to train on and to validate on."""
        return hold_out(self.num_examples("train"), float(self.option("validation")))

    @property
    def updates_per_epoch(self) -> int:
        """Batches of an epoch."""
        return math.ceil(len(self.rows[0]) / int(self.option("batch_size")))

    def run(self, context: Context) -> Mapping[str, float]:
        """Train, reporting at the end of each epoch unless it is said otherwise."""
        self.read(context)
        if "evaluate_seconds" not in self.fixed:
            self.fixed = {"evaluate_updates": self.updates_per_epoch, **self.fixed}
        if not len(self.rows[1]):
            self.fixed = {
                **self.fixed,
                "average_best": 0,
            }  # `accuracy` is the test set's, which chooses nothing
        return super().run(context)

    def epoch_batches(self, epoch: int) -> Iterator[IntArray]:
        """Rows of each batch of an epoch, shuffled."""
        rows, size = self.rows[0], int(self.option("batch_size"))
        order = rows[epoch_order(len(rows), self.seed, epoch)]
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """See `Trainable`."""
        for index, rows in enumerate(self.epoch_batches(epoch)):
            yield self.examples("train", rows, (epoch, index))

    def learning_rate(self, update: int) -> float:
        """By `rate_schedule` over all updates of the training: constant, cosine to 0, or up in 0.2 of them and down."""
        peak, schedule = float(self.option("learning_rate")), self.option("rate_schedule")
        if schedule == "constant":
            return peak
        total = self.updates_per_epoch * int(self.option("max_epochs"))
        limit = {**self.defaults, **self.fixed, **self.params}.get("max_updates")
        done = min((update - 1) / min(total, int(limit or total)), 1.0)
        rise = 0.2 if schedule == "one_cycle" else 0.0
        if done < rise:
            return peak * (0.1 + 0.9 * done / rise)
        return peak * (0.5 + 0.5 * math.cos(math.pi * (done - rise) / (1 - rise)))

    def weight(self, batch: Batch) -> float:
        """Rows of the batch."""
        return float(len(batch["label"]))

    def criterion(self, output: Any, batch: Batch) -> torch.Tensor:
        """Summed cross entropy, with `label_smoothing`."""
        from torch.nn import functional

        from workers.device.precision import wide

        smoothing = float(self.option("label_smoothing"))
        return functional.cross_entropy(
            wide(output), batch["label"], reduction="sum", label_smoothing=smoothing
        )

    def evaluate(self, model: nn.Module, device: torch.device) -> Mapping[str, float]:
        """`accuracy` and `loss` on the held-out part (or the test set), and `test_accuracy`."""
        held, has_test = self.rows[1], bool(self.num_examples("test"))
        metrics = {}
        if len(held):
            metrics = self._measure(model, device, "train", held)
        if has_test and (not len(held) or self.option("test")):
            import numpy as np

            test = self._measure(model, device, "test", np.arange(self.num_examples("test")))
            metrics = {**(metrics or test), "test_accuracy": test["accuracy"]}
        return metrics

    def _measure(
        self, model: nn.Module, device: torch.device, split: str, rows: IntArray
    ) -> dict[str, float]:
        from torch.nn import functional

        correct, loss = 0, 0.0
        for part in self.evaluation_parts(split, rows, _EVALUATION_BATCH):
            batch = {key: value.to(device) for key, value in self.examples(split, part).items()}
            output = model(*self.inputs(batch)).float()
            correct += int((output.argmax(1) == batch["label"]).sum())
            loss += float(functional.cross_entropy(output, batch["label"], reduction="sum"))
        return {"accuracy": correct / len(rows), "loss": loss / len(rows)}

    def evaluation_parts(self, split: str, rows: IntArray, size: int) -> Iterator[IntArray]:
        """The rows in parts that are evaluated together, in any order."""
        for begin in range(0, len(rows), size):
            yield rows[begin : begin + size]
