"""The batches of a training, and the rows of each rank."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Batch = Mapping[str, "torch.Tensor"]


class PlannedBatch(UserDict[str, "torch.Tensor"]):
    """A batch whose rows are built when they are asked for, so that a rank builds only its own.

    Args:
        num_rows: of the whole batch.
        num_items: of the whole batch, for `Trainable.weight`: rows, or tokens.
        build: the tensors of a slice of the rows, exactly as they are in the whole batch.
    """

    def __init__(self, num_rows: int, num_items: int, build: Callable[[slice], Batch]) -> None:
        self.num_rows = num_rows
        self.num_items = num_items
        self.rows = build

    @cached_property
    def data(self) -> Batch:  # type: ignore[override]
        """The whole batch."""
        return self.rows(slice(0, self.num_rows))


class CountedRows(dict[str, "torch.Tensor"]):
    """Rows of a batch on a device.

    Attributes:
        num_items: their `Trainable.weight`, known to the host without a look at the device.
    """

    num_items: int | None = None

    def to(self, device: torch.device) -> CountedRows:
        """The rows on a device; the host does not wait for the copies."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> CountedRows:
        """The rows with each tensor replaced."""
        found = CountedRows({name: change(tensor) for name, tensor in self.items()})
        found.num_items = self.num_items
        return found


def num_rows(batch: Batch) -> int:
    """Number of rows of a batch."""
    planned = batch.num_rows if isinstance(batch, PlannedBatch) else None
    return len(next(iter(batch.values()))) if planned is None else planned


def rows_of(batch: Batch, count: int, index: int) -> tuple[Batch, bool]:
    """Share `index` of `count` of the rows of a batch, and whether it is real.

    A dummy row stands for an empty share.
    """
    total = num_rows(batch)
    begin, end = total * index // count, total * (index + 1) // count
    rows = slice(begin, end) if end > begin else slice(0, 1)
    if isinstance(batch, PlannedBatch):
        return batch.rows(rows), end > begin
    return {key: value[rows] for key, value in batch.items()}, end > begin


@dataclass(frozen=True)
class BatchShare:
    """One rank's share of a global batch, in the parts in which it is computed.

    Every rank has the same number of parts, so that collective calls stay in step.

    Args:
        parts: microbatches, each with at least one row.
        real: whether the rows are the batch's; else a dummy row stands for an empty share.
        weight: of the global batch, see `Trainable.weight`.
    """

    parts: tuple[CountedRows, ...]
    real: bool
    weight: float

    @classmethod
    def of(
        cls,
        workload: Any,
        batch: Batch,
        *,
        count: int = 1,
        index: int = 0,
        accumulation: int = 1,
        bucketed: bool = False,
    ) -> BatchShare:
        """Share `index` of `count` of a batch, in at most `accumulation` parts.

        Args:
            workload: whose batch it is, a `workers.workload.Trainable`.
            batch: the global batch.
            bucketed: whether to pad the share to one of few shapes (`Trainable.bucketed`).
        """
        rows, real = rows_of(batch, count, index)
        rows = workload.bucketed(rows) if bucketed else rows
        parts = max(1, min(accumulation, num_rows(batch) // count))
        found = [CountedRows(rows_of(rows, parts, part)[0]) for part in range(parts)]
        for part in found:
            part.num_items = int(workload.weight(part))
        return cls(tuple(found), real, workload.weight(batch))

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The part of the mean loss of the global batch that a summed loss of this share is."""
        return loss / self.weight if self.real else loss * 0.0

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> BatchShare:
        """The share with each tensor replaced."""
        return replace(self, parts=tuple(part.each(change) for part in self.parts))
