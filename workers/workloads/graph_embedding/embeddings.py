"""What is learnt: vectors of entities, partition by partition, and of relations, and how an update moves them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.distributed as dist

from workers.workloads._data import IntArray

from .tables import Tables, normal
from .update import UpdateOptions, adagrad, gradients

_RELATIONS = (
    1 << 40
)  # relations are numbered from here where random vectors are drawn, entities from 0


class Embeddings:
    """Tables of entities, and vectors and Adagrad state of the relations, which are always in memory.

    Args:
        relations: (m, dimension), reciprocal ones in the second half; state: (m, dimension).
    """

    def __init__(self, tables: Tables, relations: torch.Tensor, state: torch.Tensor) -> None:
        self.tables, self.relations, self.state = tables, relations, state

    @classmethod
    def begin(cls, tables: Tables, num_relations: int) -> Embeddings:
        """Relations at random, a function of the seed of the tables."""
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
        """One update by a batch of edges (b, 3) of numbers of entities and relations; returns the mean loss.

        Nothing moves where that is not finite.

        Args:
            begins: of each open partition the row at which it begins; drawn: rows of the negatives.
        """
        tables, device = self.tables, self.tables.device
        parts, offsets = tables.partitioning.partition, tables.partitioning.offset
        begin = np.array([begins.get(p, 0) for p in range(tables.partitioning.count)])
        local = edges.copy()
        for column in (0, 2):
            local[:, column] = begin[parts[edges[:, column]]] + offsets[edges[:, column]]
        rows, negatives = torch.from_numpy(local).to(device), torch.from_numpy(drawn).to(device)
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
        """Rows of entities drawn evenly from the open partitions."""
        sizes = [self.tables.partitioning.sizes[part] for part in begins]
        drawn = rng.integers(0, sum(sizes), count)
        first, second = next(iter(begins.values())), list(begins.values())[-1]
        return np.where(drawn < sizes[0], first + drawn, second + drawn - sizes[0])

    def copied(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The relations and their state as they are now."""
        return self.relations.clone(), self.state.clone()

    def add_up(self, before: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Take over what every rank has changed in the relations since they were copied."""
        for now, then in zip((self.relations, self.state), before, strict=True):
            change = now - then
            dist.all_reduce(change)
            now.copy_(then + change)
