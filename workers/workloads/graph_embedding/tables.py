"""Embedding tables with two partitions in memory and the others on disk, and their checkpoints.

A checkpoint is a sealed folder (`workers.files`) in the trial's folder:

graph/<number>/entities-<part>.f32     rows of vector and optimizer state, float32
graph/<number>/relations.safetensors   relations and their optimizer state
graph/<number>/manifest.json           progress, and sha256 of the files above
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.files import Folder, newest_first, sealed, verified, write_arrays

from .partitions import Pair, Partitioning

FORMAT = 1
RELATIONS = "relations.safetensors"


class Tables:
    """The vectors of all entities and their Adagrad state, in partitions.

    One buffer holds two partitions (or the only one), each in its own half; a row is a vector
    followed by its state. Opening another pair writes changed partitions to disk and reads missing
    ones.

    Args:
        folder: for the files of the partitions.
        partitioning: of the entities.
        dimension: of a vector.
        state_size: numbers of state per vector.
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
    def vectors(self) -> Tensor:
        """The vectors of the open partitions, (rows, dimension); shares memory."""
        return self.buffer[:, : self.dimension]

    @property
    def state(self) -> Tensor:
        """The state of the open partitions, (rows, dimension); shares memory."""
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
        stored = np.memmap(self.file(part), np.float32, "c").reshape(-1, self.width)
        self.buffer[rows] = torch.from_numpy(stored).to(self.device)

    def _begin_at_random(self, part: int, rows: slice) -> None:
        """Initial vectors that depend on the seed and the partition, not on the device."""
        generator = torch.Generator().manual_seed(1000 * self.seed + part)
        self.buffer[rows] = 0.0
        drawn = torch.empty(self.vectors[rows].shape).normal_(std=self.scale, generator=generator)
        self.vectors[rows] = drawn.to(self.device)
        self.changed.add(part)

    def _write(self, part: int | None) -> None:
        if part is None or part not in self.changed:
            return
        temporary = self.file(part).with_suffix(f".{os.getpid()}")
        temporary.write_bytes(self.buffer[self.rows(part)].cpu().numpy().data)
        temporary.replace(self.file(part))
        self.changed.discard(part)


def save_checkpoint(
    folder: Path,
    work: Path,
    relations: dict[str, Tensor],
    progress: Mapping[str, Any],
    *,
    wait: bool = True,
) -> None:
    """Write the next checkpoint, and delete all but the newest two.

    Args:
        folder: of the trial.
        work: folder of the entity tables, which are only ever replaced: the checkpoint links them.
        relations: tensors by name.
        progress: JSON data for `load_checkpoint`.
        wait: whether to wait until it is on disk, see `workers.training.checkpoint`.
    """
    root = Folder(folder, "graph")
    number = 1 + max((int(old.parts[-1]) for old in newest_first(root)), default=-1)
    with sealed(root, number, {"format": FORMAT, "progress": progress}, wait=wait) as draft:
        for table in sorted(work.glob("entities-*.f32")):
            draft.file(table.name).hardlink_to(table)
        write_arrays(draft.file(RELATIONS), relations)


def load_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Path and progress of the newest checkpoint with correct hashes; None if there is none."""
    for files in newest_first(Folder(folder, "graph")):
        manifest = verified(files, FORMAT, RELATIONS)
        if manifest is not None and isinstance(manifest.get("progress"), dict):
            return files.path, manifest["progress"]
    return None


def read_entities(path: Path, partitioning: Partitioning, dimension: int) -> Tensor:
    """Vectors of all entities from a checkpoint, in the order of their numbers, (n, dimension)."""
    vectors = torch.empty(len(partitioning.partition), dimension)
    for part in range(partitioning.count):
        rows = np.fromfile(path / f"entities-{part}.f32", np.float32).reshape(-1, 2 * dimension)
        vectors[partitioning.entities(part)] = torch.from_numpy(rows[:, :dimension])
    return vectors
