"""Saves the state of a user's function and reads it again: arrays in safetensors, the rest in JSON.

    <checkpoint_dir>/saved/00000003/state.safetensors     arrays of NumPy and tensors of torch
    <checkpoint_dir>/saved/00000003/state.json            everything else, and where arrays belong

A list, tuple or mapping is an object of JSON with one key that says which, so that keys of any
plain kind and tuples come back as they were. Nothing is unpickled.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

from search_spaces.errors import UsageError
from workers.files import Folder, code_of, newest_first, sealed, verified, write_arrays

SAVED: Final = "saved"  # folder in that of the checkpoints
FORMAT: Final = 1
_ARRAYS: Final = "state.safetensors"
_TREE: Final = "state.json"


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
    arrays: dict[str, Any] = {}
    tree = json.dumps(_packed(state, "", arrays))
    number = 1 + max((int(folder.parts[-1]) for folder in newest_first(saved)), default=0)
    with sealed(saved, number, {"format": FORMAT}) as draft:
        write_arrays(draft.file(_ARRAYS), arrays)
        draft.file(_TREE).write_text(tree)


def restore_state(checkpoints: Folder, damaged: list[str]) -> Any:
    """The newest state whose hashes are right; tensors are on the CPU. None if there is none.

    Args:
        checkpoints: the folder of the trial's checkpoints.
        damaged: receives the paths of newer ones that are damaged.
    """
    for folder in newest_first(checkpoints / SAVED):
        if verified(folder, FORMAT, _ARRAYS, _TREE) is not None:
            with suppress(OSError, ValueError, SafetensorError):
                tree = json.loads(folder.file(_TREE).read_bytes())
                return _unpacked(tree, cache(partial(safe_open, folder.file(_ARRAYS))))
        damaged.append(str(folder.path))
    return None


def newest_saved(checkpoints: Folder) -> Folder | None:
    """The folder of the newest state whose hashes are right; None if there is none."""
    folders = newest_first(checkpoints / SAVED)
    return next((one for one in folders if verified(one, FORMAT, _ARRAYS, _TREE)), None)


def _packed(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    """The part of a state at a place, as JSON; `arrays` receives those that it meets, by name."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        pairs = [
            [_packed(k, f"{place} (a key)", arrays), _packed(one, f"{place}.{k}", arrays)]
            for k, one in value.items()
        ]
        return {"mapping": pairs}
    if isinstance(value, list | tuple):
        parts = [_packed(one, f"{place}.{index}", arrays) for index, one in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    name = place.removeprefix(".") or "state"
    got = type(value).__name__
    kinds = {np.generic: "scalar", np.ndarray: "array"}
    kind = next((word for k, word in kinds.items() if isinstance(value, k)), "tensor")
    if kind != "tensor" or hasattr(value, "detach"):
        got = f"{got} of {value.dtype}"
        with suppress(KeyError):
            code_of(value)
            if name in arrays:  # a key with a dot may look like two keys
                name = f"{name} ({len(arrays)})"
            arrays[name] = np.asarray(value) if kind == "scalar" else value
            return {kind: name}
    raise UsageError(
        "a state to save has mappings, lists, tuples, arrays, tensors, numbers, texts and "
        f"None, got {got} at {place.removeprefix('.') or 'its top'!r}"
    )


def _unpacked(part: Any, opened: Any) -> Any:
    """The inverse of `_packed`; `opened` gives the arrays as NumPy's or as torch's."""
    if not isinstance(part, dict):
        return part
    ((kind, content),) = part.items()
    match kind:
        case "mapping":
            return {_unpacked(key, opened): _unpacked(one, opened) for key, one in content}
        case "list" | "tuple":
            parts = [_unpacked(one, opened) for one in content]
            return parts if kind == "list" else tuple(parts)
        case "tensor":
            return opened("pt").get_tensor(content)
    array = opened("np").get_tensor(content)
    return array[()] if kind == "scalar" else array
