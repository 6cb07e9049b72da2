"""The trained vectors: entities in partitions, relations in memory, and their updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from workers.workloads._data import IntArray

from .tables import Tables, normal
from .update import UpdateOptions, adagrad, gradients

_RELATIONS = 1 << 40  # offset of relation numbers in `normal`; entities begin at 0


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Tables of entities; vectors and Adagrad state of relations, which are always in memory.

    Args:
        relations: (m, dimension); reciprocal relations in the second half.
        state: (m, dimension).
    """

    tables: Tables
    relations: torch.Tensor
    state: torch.Tensor

    @classmethod
    def begin(cls, tables: Tables, num_relations: int) -> Embeddings:
        """Random relations that depend only on the seed of the tables."""
        numbers = np.arange(num_relations, dtype=np.int64) + _RELATIONS
        values = normal(numbers, tables.dimension, tables.seed) * np.float32(tables.scale)
        relations = torch.from_numpy(values).to(tables.device)
        return cls(tables, relations, torch.zeros_like(relations))

    def update(
        self,
        begins: Mapping[int, int],
        edges: IntArray,
        drawn: IntArray,
        by: UpdateOptions,
        rate: float,
    ) -> float:
        """One update with a batch of edges; nothing changes if the loss is not finite.

        Args:
            begins: maps each open partition to its first row.
            edges: (b, 3) of numbers of entities and relations.
            drawn: rows of the negatives.
            by: options of the update.
            rate: the learning rate.

        Returns:
            The mean loss.
        """
        tables = self.tables
        place = tables.partitioning
        begin = np.array([begins.get(p, 0) for p in range(place.count)])
        local = edges.copy()
        for column in (0, 2):
            entities = edges[:, column]
            local[:, column] = begin[place.partition[entities]] + place.offset[entities]
        rows, negatives = (torch.from_numpy(x).to(tables.device) for x in (local, drawn))
        loss, by_entities, by_relations = gradients(
            tables.vectors, self.relations, rows, negatives, by
        )
        value = float(loss)
        if math.isfinite(value):
            adagrad(tables.vectors, tables.state, *by_entities, rate)
            adagrad(self.relations, self.state, *by_relations, rate)
        return value

    def negatives(
        self, begins: Mapping[int, int], count: int, rng: np.random.Generator
    ) -> IntArray:
        """Rows of entities drawn uniformly from the open partitions."""
        sizes = [self.tables.partitioning.sizes[part] for part in begins]
        drawn = rng.integers(0, sum(sizes), count)
        starts = list(begins.values())
        return np.where(drawn < sizes[0], starts[0] + drawn, starts[-1] + drawn - sizes[0])

    def copied(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the relations and their state."""
        return self.relations.clone(), self.state.clone()

    def add_up(self, before: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Add the changes that every rank made to the relations since they were copied."""
        for now, then in zip((self.relations, self.state), before, strict=True):
            change = now - then
            dist.all_reduce(change)
            now.copy_(then + change)
