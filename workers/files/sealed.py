"""Numbered folders of files with hashes: every one is complete, and a damaged one is noticed.

<root>/00000420/manifest.json    facts, and sha256 of the other files

Their arrays are in safetensors files, which are written one array at a time, without a copy of all.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

import numpy as np

from .folder import Folder, flush, sha256

MANIFEST: Final = "manifest.json"
_CODES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


@contextlib.contextmanager
def sealed(
    root: Folder, number: int, facts: Mapping[str, Any], *, keep: int = 2, wait: bool = True
) -> Iterator[Folder]:
    """A folder to write files into. At the end it replaces the numbered one as a whole.

    Args:
        root: in which folder.
        number: names it; the highest is the newest.
        facts: for the manifest, JSON.
        keep: how many of the newest remain.
        wait: until the files are on disk. If not, the hashes show what a power failure has damaged.

    Raises:
        OSError: the folder cannot be written; earlier ones remain.
    """
    draft, final = root / f".{number:08d}.{os.getpid()}", root / f"{number:08d}"
    draft.remove()
    draft.make()
    yield draft
    hashes = {name: {"sha256": sha256(draft.file(name))} for name in draft.names()}
    content = json.dumps({**facts, "files": hashes}, indent=1, sort_keys=True)
    draft.file(MANIFEST).write_text(content)
    for name in draft.names() if wait else ():
        flush(draft.file(name))
    final.remove()
    draft.path.rename(final.path)
    if wait:
        flush(root.path)
    for old in newest_first(root)[keep:]:
        with contextlib.suppress(OSError):
            old.remove()


def newest_first(root: Folder) -> list[Folder]:
    """The numbered folders; they may be damaged."""
    numbers = [name for name in root.names() if name.isdecimal()]
    return [root / name for name in sorted(numbers, key=int, reverse=True)]


def verified(folder: Folder, format_number: int, *names: str) -> dict[str, Any] | None:
    """The manifest of a folder if its format is right and it has these files, else None.

    The hash of each file that it names is right too.
    """
    with contextlib.suppress(
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
    ):  # StoreError is a ValueError
        manifest: dict[str, Any] = json.loads(folder.file(MANIFEST).read_bytes())
        hashes = manifest["files"]
        sound = manifest["format"] == format_number and set(names) <= set(hashes)
        if sound and all(sha256(folder.file(n)) == hashes[n]["sha256"] for n in hashes):
            return manifest
    return None


def code_of(array: Any) -> str:
    """The type of an array or tensor as safetensors name it; KeyError if they do not have it."""
    return _CODES[str(array.dtype).removeprefix("torch.")]


def write_arrays(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write arrays of NumPy and tensors of torch, by name, as a safetensors file."""
    header = {}
    end = 0
    for name, array in arrays.items():
        offsets = [end, end + array.nbytes]
        shape = list(array.shape)
        header[name] = {"dtype": code_of(array), "shape": shape, "data_offsets": offsets}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        if hasattr(array, "detach"):
            import torch

            array = array.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
