"""Checkpoints that any strategy can read: whole fp32 tensors and a JSON manifest with hashes.

    <folder>/checkpoints/00000420/model.safetensors       parameters and buffers by name
    <folder>/checkpoints/00000420/optimizer.safetensors   state by "<parameter>|<key>"
    <folder>/checkpoints/00000420/manifest.json           progress, and sha256 of the files

A checkpoint is written to a temporary folder, flushed to disk and renamed, so that every checkpoint
is complete. The last two are kept. One that does not match its hashes is skipped for the one
before. Nothing is unpickled.

While a GPU trains, the tensors are copied to main memory and a thread writes them. A process that
is killed meanwhile leaves the checkpoint before.

If the trial is to end, `save` does not wait for the disk, which may take seconds. If the power
fails then, the hashes show the damage.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from search_spaces.hardware import memory_limit
from workers.files import Folder, newest_first, sealed, verified, write_arrays
from workers.protocol import CHECKPOINTS

FORMAT = 1
_FILES = ("model.safetensors", "optimizer.safetensors")


@dataclass
class Checkpoint:
    """The state of a training run; its tensors are whole and on the CPU.

    Args:
        model: parameters and buffers by canonical name.
        optimizer: state tensors by key (such as "exp_avg") and parameter.
        progress: counters and settings, as JSON.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, dict[str, Tensor]]
    progress: Mapping[str, Any] = field(default_factory=dict)

    def flat(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors of the two files by name."""
        states = self.optimizer.items()
        return self.model, {
            f"{name}|{key}": t for key, found in states for name, t in found.items()
        }


def save(
    folder: Path, update: int, checkpoint: Checkpoint, keep: int = 2, *, wait: bool = True
) -> Path:
    """Write a checkpoint, replace one of the same update, and delete all but the newest `keep`.

    Args:
        folder: the trial's folder.
        update: the number of updates so far; it names the checkpoint.
        checkpoint: the state.
        keep: how many checkpoints remain.
        wait: until the files are on disk.

    Raises:
        OSError: the folder cannot be written; earlier checkpoints remain.
    """
    root = Folder(folder, CHECKPOINTS)
    facts = {"format": FORMAT, "update": update, "progress": checkpoint.progress}
    with sealed(root, update, facts, keep=keep, wait=wait) as draft:
        for name, tensors in zip(_FILES, checkpoint.flat(), strict=True):
            write_arrays(draft.file(name), tensors)
    return root.path / f"{update:08d}"


def load(folder: Path, damaged: list[str] | None = None) -> Checkpoint | None:
    """The newest checkpoint of the trial that matches its hashes; None if there is none.

    Args:
        folder: the trial's folder.
        damaged: receives the names of newer checkpoints that are damaged.
    """
    for files in newest_first(Folder(folder, CHECKPOINTS)):
        manifest = verified(files, FORMAT, *_FILES)
        if manifest and isinstance(manifest.get("progress"), dict):
            with suppress(OSError, SafetensorError):
                model, moments = (load_file(files.file(name)) for name in _FILES)
                found = Checkpoint(model, {}, manifest["progress"])
                for text, tensor in moments.items():
                    name, _, key = text.rpartition("|")
                    found.optimizer.setdefault(key, {})[name] = tensor
                return found
        if damaged is not None:
            damaged.append(files.path.name)
    return None


def writes_beside(device: torch.device, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is written while the training goes on.

    Beside a GPU cores are free, and main memory if it holds a copy of the tensors twice. On CPUs
    the copy would count as the trial's memory.
    """
    held = sum(tensor.nbytes for tensors in checkpoint.flat() for tensor in tensors.values())
    own = memory_limit() - psutil.Process().memory_info().rss  # in a container less is free
    room = min(psutil.virtual_memory().available, own)
    return device.type == "cuda" and room > 2 * held
