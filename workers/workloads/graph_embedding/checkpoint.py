"""Checkpoints of the tables: sealed folders (`workers.files`) in the trial's folder.

graph/<number>/entities-<part>.f32     rows of vector and optimizer state, float32
graph/<number>/relations.safetensors   relations and their optimizer state
graph/<number>/manifest.json           progress, and sha256 of the files above
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workers.files import Folder, newest_first, sealed, verified, write_arrays

from .partitions import Partitioning

FORMAT = 1
RELATIONS = "relations.safetensors"


def save_checkpoint(
    folder: Path,
    work: Path,
    relations: dict[str, torch.Tensor],
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
        with draft.open(RELATIONS, "wb") as file:
            write_arrays(file, relations)


def load_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Path and progress of the newest checkpoint with correct hashes; None if there is none."""
    for files in newest_first(Folder(folder, "graph")):
        manifest = verified(files, FORMAT, RELATIONS)
        if manifest is not None and isinstance(manifest.get("progress"), dict):
            return files.path, manifest["progress"]
    return None


def read_entities(path: Path, partitioning: Partitioning, dimension: int) -> torch.Tensor:
    """Vectors of all entities from a checkpoint, in the order of their numbers, (n, dimension)."""
    vectors = torch.empty(len(partitioning.partition), dimension)
    for part in range(partitioning.count):
        rows = np.fromfile(path / f"entities-{part}.f32", np.float32).reshape(-1, 2 * dimension)
        vectors[partitioning.entities(part)] = torch.from_numpy(rows[:, :dimension])
    return vectors
