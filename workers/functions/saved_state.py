"""Saves the state of a user's function and reads it again: arrays in safetensors, the rest in JSON.

    <checkpoint_dir>/saved/00000003/state.safetensors     arrays of NumPy and tensors of torch
    <checkpoint_dir>/saved/00000003/state.json            everything else, and where arrays belong

A list, tuple or mapping is an object of JSON with one key that says which, so that keys of any
plain kind and tuples come back as they were. Nothing is unpickled.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from search_spaces.errors import UsageError
from workers.files.arrays import StoredArray, write_arrays
from workers.files.folder import Folder
from workers.files.sealed import Draft, newest_first, verified

SAVED: Final = "saved"  # folder in that of the checkpoints
FORMAT: Final = 1
_ARRAYS: Final = "state.safetensors"
_TREE: Final = "state.json"
_PLAIN: Final = (bool, int, float, str, type(None))


def save_state(checkpoints: Folder, state: Any) -> None:
    """Write a state beside the one before; older ones are deleted.

    Args:
        checkpoints: the folder of the trial's checkpoints.
        state: mappings, lists and tuples, at any depth, of arrays, tensors, numbers, texts and
            None. Tensors may be on any device.

    Raises:
        UsageError: something else is in it.
        OSError: it cannot be written; earlier ones remain.
    """
    saved = checkpoints / SAVED
    packer = _Packer()
    try:
        tree = json.dumps(packer.packed(state, "")).encode()
    except RecursionError:
        raise UsageError("a state to save must not contain itself") from None
    newest = newest_first(saved)[:1]
    number = 1 + max((int(folder.parts[-1]) for folder in newest), default=0)
    draft = Draft(saved, number)
    draft.write(_ARRAYS, partial(write_arrays, arrays=packer.arrays))
    draft.write(_TREE, partial(_write, content=tree))
    draft.finish({"format": FORMAT})


def savable(state: Any) -> bool:
    """Whether `save_state` can write a state."""
    try:
        json.dumps(_Packer().packed(state, ""))
    except (UsageError, RecursionError):
        return False
    return True


def restore_state(checkpoints: Folder, damaged: list[str]) -> Any:
    """The newest state whose hashes are right; tensors are on the CPU. None if there is none.

    Args:
        checkpoints: the folder of the trial's checkpoints.
        damaged: receives the paths of newer ones that are damaged.
    """
    for folder in newest_first(checkpoints / SAVED):
        if verified(folder, FORMAT, _ARRAYS, _TREE) is not None:
            try:
                tree = json.loads(folder.read(_TREE, most=1 << 30))
                return _unpacked(tree, folder.file(_ARRAYS))
            except (OSError, ValueError, SafetensorError):
                pass
        damaged.append(str(folder.path))
    return None


def newest_saved(checkpoints: Folder) -> Folder | None:
    """The folder of the newest state whose hashes are right; None if there is none."""
    for folder in newest_first(checkpoints / SAVED):
        if verified(folder, FORMAT, _ARRAYS, _TREE) is not None:
            return folder
    return None


def _write(file: IO[bytes], content: bytes) -> str:
    file.write(content)
    return hashlib.sha256(content).hexdigest()


@dataclass
class _Packer:
    """Takes a state apart; `arrays` are those that it has met, by name."""

    arrays: dict[str, StoredArray] = field(default_factory=dict)

    def packed(self, value: Any, place: str) -> Any:
        """The part of a state at a place, as JSON."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping):
            return {
                "mapping": [
                    [self.packed(key, f"{place} (a key)"), self.packed(one, f"{place}.{key}")]
                    for key, one in value.items()
                ]
            }
        if isinstance(value, list | tuple):
            parts = [self.packed(one, f"{place}.{index}") for index, one in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": parts}
        return self._packed_array(value, place)

    def _packed_array(self, value: Any, place: str) -> Any:
        torch = sys.modules.get("torch")
        try:
            if torch is not None and isinstance(value, torch.Tensor):
                return {"tensor": self._keep(StoredArray.of_tensor(value), place)}
            if isinstance(value, np.ndarray):
                return {"array": self._keep(StoredArray.of_array(value), place)}
            if isinstance(value, np.generic):
                return {"scalar": self._keep(StoredArray.of_array(np.asarray(value)), place)}
        except KeyError:
            kind = f"{type(value).__name__} of {value.dtype}"
        else:
            kind = type(value).__name__
        raise UsageError(
            "a state to save has mappings, lists, tuples, arrays, tensors, numbers, texts and "
            f"None, got {kind} at {place.removeprefix('.') or 'its top'!r}"
        )

    def _keep(self, array: StoredArray, place: str) -> str:
        name = place.removeprefix(".") or "state"
        if name in self.arrays:  # a key with a dot may look like two keys
            name = f"{name} ({len(self.arrays)})"
        self.arrays[name] = array
        return name


def _unpacked(tree: Any, path: Path) -> Any:
    """The inverse of `_Packer.packed`; torch is imported only if there are tensors."""

    @cache
    def opened(framework: str) -> Any:
        return safe_open(path, framework=framework)

    def read(name: str, framework: str) -> Any:
        return opened(framework).get_tensor(name)

    def value_of(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        ((kind, content),) = part.items()
        match kind:
            case "mapping":
                return {value_of(key): value_of(one) for key, one in content}
            case "list":
                return [value_of(one) for one in content]
            case "tuple":
                return tuple(value_of(one) for one in content)
            case "tensor":
                return read(content, "pt")
            case "array":
                return read(content, "np")
        return read(content, "np")[()]

    return value_of(tree)
