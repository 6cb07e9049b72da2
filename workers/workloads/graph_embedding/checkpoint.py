"""Checkpoints of the tables: atomic, with hashes, and without pickle.

<folder>/graph/<number>/entities-<part>.f32     rows of vector and optimizer state, float32
<folder>/graph/<number>/relations.safetensors   relations and their optimizer state
<folder>/graph/<number>/manifest.json           progress, and sha256 of the files above
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from workers.files.disk import flush, sha256

from .partitions import Partitioning


def save_checkpoint(
    folder: Path,
    work: Path,
    relations: dict[str, torch.Tensor],
    progress: Mapping[str, Any],
    *,
    wait: bool = True,
) -> None:
    """Write `folder`/graph/<number> atomically, and delete all but the newest two.

    Args:
        work: folder of the entity tables.
        relations: tensors by name.
        progress: JSON data for `load_checkpoint`.
        wait: whether to wait until it is on disk, see `workers.training.checkpoint`.
    """
    root = folder / "graph"
    numbers = _numbers(root)
    number = numbers[-1] + 1 if numbers else 0
    temporary = root / f".{number}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for file in sorted(work.glob("entities-*.f32")):
        link(file, temporary / file.name)
    save_file(
        {key: tensor.contiguous() for key, tensor in relations.items()},
        temporary / "relations.safetensors",
    )
    hashes = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
    (temporary / "manifest.json").write_text(json.dumps({"progress": progress, "sha256": hashes}))
    for path in temporary.iterdir() if wait else ():
        flush(path)
    temporary.rename(root / str(number))
    for old in numbers[:-1]:
        shutil.rmtree(root / str(old), ignore_errors=True)


def load_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Path and progress of the newest checkpoint with correct hashes; None if there is none."""
    root = folder / "graph"
    for number in reversed(_numbers(root)):
        path = root / str(number)
        try:
            manifest = json.loads((path / "manifest.json").read_text())
            if all(sha256(path / name) == value for name, value in manifest["sha256"].items()):
                return path, manifest["progress"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _numbers(root: Path) -> list[int]:
    return sorted(int(path.name) for path in root.glob("[0-9]*"))


def read_entities(
    path: Path, partitioning: Partitioning, dimension: int, width: int
) -> torch.Tensor:
    """Vectors of all entities from a checkpoint, in the order of their numbers, (n, dimension)."""
    vectors = torch.empty(len(partitioning.partition), dimension)
    for part in range(partitioning.count):
        rows = np.fromfile(path / f"entities-{part}.f32", np.float32).reshape(-1, width)
        vectors[torch.from_numpy(partitioning.entities(part))] = torch.from_numpy(
            rows[:, :dimension].copy()
        )
    return vectors


def link(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it if that fails."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
