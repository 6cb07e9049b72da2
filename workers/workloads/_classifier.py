"""Base class of classifiers: examples in memory, validation split, schedules, accuracy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from workers.batches import Batch, PlannedBatch, num_rows
from workers.context import Context
from workers.protocol import Metric
from workers.training import TRAINING_METRICS
from workers.workload import SharedEvaluation

from ._declarative_workload import (
    DeclarativeWorkload,
    IntArray,
    TrainedWorkload,
    epoch_order,
    hold_out,
)

if TYPE_CHECKING:
    import torch

SCHEDULES = ("constant", "cosine", "one_cycle")
_EVALUATION_BATCH = 250  # small, so that a stop request takes effect soon


class Classifier(DeclarativeWorkload, SharedEvaluation, TrainedWorkload):
    """Base class of workloads whose batches have one `label` per row.

    `accuracy` and `loss` are measured after each epoch on the validation split, a share
    `fixed.validation` of the training set. If that share is 0 they are measured on the test set.
    `test_accuracy` is reported too unless `fixed.test` is false; it never influences a choice. The
    weights of the best report are kept, or the last ones if there is no validation split.
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
        "label_smoothing": 0.0,
        "rate_schedule": "constant",
        "clip_norm": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
    }

    def examples_of(self, split: str) -> Any:
        """The part of the data set for "train" or "test"; it has `labels`, one per example."""
        dataset = self.dataset()
        return dataset.train if split == "train" else dataset.test

    def examples(self, split: str, rows: IntArray) -> Batch:
        """A batch of these rows of "train" or "test"."""
        return self.examples_part(split, rows, None, slice(None))

    @cached_property
    def rows(self) -> tuple[IntArray, IntArray]:
        """Rows of the training set for training and for validation."""
        count = len(self.examples_of("train").labels)
        return hold_out(count, float(self.option("validation")))

    @property
    def updates_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return math.ceil(len(self.rows[0]) / int(self.option("batch_size")))

    def run(self, context: Context) -> Mapping[str, float]:
        """Train; report at the end of each epoch unless options say otherwise."""
        self.read(context)
        if "evaluate_seconds" not in self.fixed:
            self.fixed = {"evaluate_updates": self.updates_per_epoch, **self.fixed}
        return super().run(context)

    def epoch_batches(self, epoch: int) -> Iterator[IntArray]:
        """Rows of each batch of an epoch, shuffled."""
        rows = self.rows[0]
        size = int(self.option("batch_size"))
        order = rows[epoch_order(len(rows), self.seed, epoch)]
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    @abstractmethod
    def examples_part(
        self, split: str, rows: IntArray, rng_seed: tuple[int, int] | None, part: slice
    ) -> Batch:
        """The rows `part` of the batch of these rows of "train" or "test".

        They are augmented at random if a seed is given, and are the same in every part.
        """

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """See `Trainable`."""
        for index, rows in enumerate(self.epoch_batches(epoch)):
            build = partial(self.examples_part, "train", rows, (epoch, index))
            yield PlannedBatch(len(rows), len(rows), build)

    def learning_rate(self, update: int) -> float:
        """The learning rate at an update, counted from 1, by `rate_schedule`.

        "constant" stays at the peak; "cosine" falls to 0; "one_cycle" rises for a fifth of all
        updates, then falls to 0.
        """
        peak = float(self.option("learning_rate"))
        schedule = self.option("rate_schedule")
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
        """Number of rows in the batch."""
        return float(num_rows(batch))

    def criterion(self, output: Any, batch: Batch) -> torch.Tensor:
        """Summed cross entropy, with `label_smoothing`."""
        from torch.nn import functional

        from workers.device.precision import wide

        smoothing = float(self.option("label_smoothing"))
        return functional.cross_entropy(
            wide(output), batch["label"], reduction="sum", label_smoothing=smoothing
        )

    def evaluate_share(
        self, model: torch.nn.Module, device: torch.device, index: int, count: int
    ) -> Mapping[str, list[float]]:
        """By split: correct answers and summed loss of a share of its rows, and all its rows."""
        held = self.rows[1]
        found = {}
        if len(held):
            found["train"] = self._measure(model, device, "train", held, index, count)
        tests = len(self.examples_of("test").labels)
        if tests and (not found or self.option("test")):
            found["test"] = self._measure(model, device, "test", np.arange(tests), index, count)
        return found

    def combine(self, shares: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """`accuracy` and `loss` on the validation split (or the test set), and `test_accuracy`."""
        metrics: dict[str, float] = {}
        for split, (_, _, rows) in shares[0].items():
            accuracy = sum(share[split][0] for share in shares) / rows
            loss = sum(share[split][1] for share in shares) / rows
            metrics = metrics or {"accuracy": accuracy, "loss": loss}
            if split == "test":
                metrics["test_accuracy"] = accuracy
        return metrics

    def _measure(
        self,
        model: torch.nn.Module,
        device: torch.device,
        split: str,
        rows: IntArray,
        index: int,
        count: int,
    ) -> list[float]:
        import torch
        from torch.nn import functional

        # Sums stay on the device: to read them would wait for every batch.
        correct = torch.zeros((), dtype=torch.int64, device=device)
        loss = torch.zeros((), dtype=torch.float64, device=device)
        for part in self.evaluation_parts(split, rows, _EVALUATION_BATCH * count):
            mine = part[index::count]
            real = len(mine) > 0  # every rank calls the model equally often
            examples = self.examples(split, mine if real else part[:1])
            batch = {key: value.to(device) for key, value in examples.items()}
            output = model(*self.inputs(batch)).float()
            if real:
                correct += (output.argmax(1) == batch["label"]).sum()
                loss += functional.cross_entropy(output, batch["label"], reduction="sum")
        return [int(correct), float(loss), len(rows)]

    def evaluation_parts(self, split: str, rows: IntArray, size: int) -> Iterator[IntArray]:
        """The rows, divided into parts of at most `size` for evaluation, in any order."""
        for begin in range(0, len(rows), size):
            yield rows[begin : begin + size]
