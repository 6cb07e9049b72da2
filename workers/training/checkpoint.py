"""Checkpoints that any strategy can read: whole fp32 tensors and a JSON manifest with hashes.

    <folder>/checkpoints/00000420/model.safetensors       parameters and buffers by name
    <folder>/checkpoints/00000420/optimizer.safetensors   state by "<parameter>|<key>"
    <folder>/checkpoints/00000420/manifest.json           progress, and sha256 of the files

A checkpoint is written to a temporary folder, flushed to disk and renamed, so that every checkpoint
is complete. The last two are kept. One that does not match its hashes is skipped for the one
before. Nothing is unpickled.

If the trial is to end, `save` does not wait for the disk, which may take seconds. If the power
fails then, the hashes show the damage.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from workers.files.folder import Folder

FOLDER = "checkpoints"  # in the trial's
FORMAT = 1
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
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
    progress: dict[str, Any] = field(default_factory=dict)


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
    root = Folder(folder, FOLDER)
    final = f"{update:08d}"
    draft = f".{final}.{os.getpid()}"
    temporary = root / draft
    temporary.remove()
    temporary.make()
    states = checkpoint.optimizer
    flat = {f"{name}|{key}": t for key, tensors in states.items() for name, t in tensors.items()}
    written = zip(_FILES, (checkpoint.model, flat), strict=True)
    hashes = {name: {"sha256": _write(temporary, name, tensors)} for name, tensors in written}
    manifest = {
        "format": FORMAT,
        "update": update,
        "progress": checkpoint.progress,
        "files": hashes,
    }
    with temporary.open("manifest.json", "w") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
    for name in (*_FILES, "manifest.json") if wait else ():
        with temporary.open(name) as file:
            os.fsync(file.fileno())
    (root / final).remove()
    root.rename(draft, final)
    if wait:
        root.flush()
    for old in _newest_first(root)[keep:]:
        with contextlib.suppress(OSError):
            old.remove()
    return (root / final).path


def load(folder: Path, damaged: list[str] | None = None) -> Checkpoint | None:
    """The newest checkpoint of the trial that matches its hashes; None if there is none.

    Args:
        folder: the trial's folder.
        damaged: receives the names of newer checkpoints that are damaged.
    """
    for files in _newest_first(Folder(folder, FOLDER)):
        manifest = _verified(files)
        tensors = None
        if manifest is not None:
            with contextlib.suppress(OSError, SafetensorError):
                tensors = [_load(files, name) for name in _FILES]
        if manifest is None or tensors is None:
            if damaged is not None:
                damaged.append(files.path.name)
            continue
        model, flat = tensors
        optimizer: dict[str, dict[str, Tensor]] = {}
        for name, tensor in flat.items():
            parameter, _, key = name.rpartition("|")
            optimizer.setdefault(key, {})[parameter] = tensor
        return Checkpoint(model, optimizer, manifest["progress"])
    return None


def write_tensors(file: IO[bytes], tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file one tensor at a time, without a copy of all; return its sha256."""
    header = {}
    end = 0
    for name, tensor in tensors.items():
        begin = end
        end += tensor.nbytes
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    hashed = hashlib.sha256()
    for part in (len(text).to_bytes(8, "little"), text):
        hashed.update(part)
        file.write(part)
    for tensor in tensors.values():
        flat = tensor.cpu().contiguous().flatten().view(torch.uint8)
        content: Any = memoryview(flat.numpy())  # type: ignore[arg-type]
        hashed.update(content)
        file.write(content)
    return hashed.hexdigest()


def _write(files: Folder, name: str, tensors: Mapping[str, Tensor]) -> str:
    with files.open(name, "wb") as file:
        return write_tensors(file, tensors)


def _load(files: Folder, name: str) -> dict[str, Tensor]:
    with files.opened_path(name) as path:
        tensors: dict[str, Tensor] = load_file(path)
    return tensors


def _newest_first(root: Folder) -> list[Folder]:
    numbers = [name for name in root.names() if name.isdecimal()]
    return [root / name for name in sorted(numbers, key=int, reverse=True)]


def _verified(files: Folder) -> dict[str, Any] | None:
    """The manifest if the format and all hashes are right, else None."""
    try:
        manifest = json.loads(files.read("manifest.json"))
        sound = manifest["format"] == FORMAT and isinstance(manifest["progress"], dict)
        hashes: Mapping[str, Any] = manifest["files"]
        sound = sound and all(files.sha256(name) == hashes[name]["sha256"] for name in _FILES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # StoreError is a ValueError
        return None
    return manifest if sound else None
