"""Embedding tables with two partitions in memory and the others on disk, and their vectors."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.workloads._data import IntArray

from .partitions import Pair, Partitioning
from .update import UpdateOptions, adagrad, gradients


class Tables:
    """The vectors of all entities and their Adagrad state, in partitions.

    One buffer holds two partitions (or the only one), each in its own half; a row is a vector
    followed by its state. Opening another pair writes changed partitions to disk and reads missing
    ones.

    Args:
        folder: for the files of the partitions.
        partitioning: of the entities.
        dimension: of a vector.
        state_size: numbers of state per vector: its dimension (one per coordinate) or 1 (one per
            row).
        device: of the buffer.
        scale: standard deviation of the initial vectors.
        seed: of the initial vectors.
    """

    def __init__(
        self,
        folder: Path,
        partitioning: Partitioning,
        dimension: int,
        state_size: int,
        device: torch.device,
        scale: float = 1e-2,
        seed: int = 0,
    ) -> None:
        self.folder = folder
        self.partitioning = partitioning
        self.dimension = dimension
        self.width = dimension + state_size
        self.device = device
        self.scale = scale
        self.seed = seed
        self.half = max(partitioning.sizes)
        self.buffer = torch.zeros(self.half * min(2, partitioning.count), self.width, device=device)
        self.places: list[int | None] = [None] * min(2, partitioning.count)
        self.changed: set[int] = set()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bytes(self) -> int:
        """Memory that the tables take."""
        return self.buffer.nbytes

    @property
    def vectors(self) -> Tensor:
        """The vectors of the open partitions, (rows, dimension); shares memory."""
        return self.buffer[:, : self.dimension]

    @property
    def state(self) -> Tensor:
        """The state of the open partitions, (rows, state_size); shares memory."""
        return self.buffer[:, self.dimension :]

    def open(self, pair: Pair, *, change: bool = True) -> tuple[int, int]:
        """Load a pair of partitions into memory.

        Args:
            pair: two partitions, or the same twice.
            change: whether their rows will change.

        Returns:
            The first row of each.
        """
        wanted = dict.fromkeys(pair)
        for part in wanted:
            if part not in self.places:
                place = next(i for i, held in enumerate(self.places) if held not in wanted)
                self._write(self.places[place])
                self._read(part, place)
        if change:
            self.changed.update(wanted)
        return self._begin(pair[0]), self._begin(pair[1])

    def rows(self, part: int) -> slice:
        """The rows of an open partition."""
        begin = self._begin(part)
        return slice(begin, begin + self.partitioning.sizes[part])

    def flush(self) -> None:
        """Write changed partitions to disk."""
        for part in self.places:
            self._write(part)

    def file(self, part: int) -> Path:
        """The file of a partition: raw float32, row by row."""
        return self.folder / f"entities-{part}.f32"

    def _begin(self, part: int) -> int:
        return self.places.index(part) * self.half

    def _read(self, part: int, place: int) -> None:
        rows = slice(place * self.half, place * self.half + self.partitioning.sizes[part])
        self.places[place] = part
        if not self.file(part).exists():
            self._begin_at_random(part, rows)
            return
        target = self.buffer[rows]
        if self.device.type == "cpu":
            with self.file(part).open("rb") as file:
                file.readinto(target.numpy().data.cast("B"))
        else:
            stored = np.fromfile(self.file(part), np.float32).reshape(-1, self.width)
            target.copy_(torch.from_numpy(stored))

    def _begin_at_random(self, part: int, rows: slice) -> None:
        """Initial vectors that depend only on entity and seed, not on the partitioning."""
        entities = self.partitioning.entities(part)
        target = self.buffer[rows]
        target.zero_()
        for begin in range(0, len(entities), 4096):
            block = entities[begin : begin + 4096]
            values = normal(block, self.dimension, self.seed) * np.float32(self.scale)
            vectors = torch.from_numpy(values).to(self.device)
            target[begin : begin + len(block), : self.dimension] = vectors
        self.changed.add(part)

    def _write(self, part: int | None) -> None:
        if part is None or part not in self.changed:
            return
        temporary = self.file(part).with_suffix(f".{os.getpid()}")
        temporary.write_bytes(self.buffer[self.rows(part)].cpu().numpy().data)
        temporary.replace(self.file(part))
        self.changed.discard(part)


def normal(rows: IntArray, columns: int, seed: int) -> npt.NDArray[np.float32]:
    """Standard normal numbers (rows, columns) of float32.

    Each row depends only on its number and the seed: a counter is hashed by the finaliser of
    splitmix64, followed by the Box-Muller transform.
    """
    half = (columns + 1) // 2
    with np.errstate(over="ignore"):
        offsets = np.arange(2 * half, dtype=np.uint64)
        counter = rows.astype(np.uint64)[:, None] * np.uint64(2 * half) + offsets
        counter += np.uint64(seed + 1) * np.uint64(0x632BE59BD9B4E019)
        x: npt.NDArray[Any] = counter * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    uniform = ((x >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)
    radius = np.sqrt(-2 * np.log(uniform[:, :half]))
    angle = 2 * np.pi * uniform[:, half:]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return both[:, :columns].astype(np.float32)


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
