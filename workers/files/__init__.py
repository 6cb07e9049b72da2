"""Files of a store: folders that no link leads out of, and numbered folders with hashes.

A numbered folder is complete, and a damaged one is noticed:

    <root>/00000420/manifest.json    facts, and sha256 of the other files

Its arrays are in safetensors files, which are written one array at a time, without a copy of all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import numpy as np

from search_spaces.errors import StoreError

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


def flush(path: Path) -> None:
    """Wait until the content of a file or a folder is on disk; raises OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Folder:
    """A folder below a trusted one; it need not exist.

    Every method raises StoreError if a symbolic link is in the way, or a pipe or a device in place
    of a file, and OSError if the system refuses.

    Args:
        root: the trusted folder; links in its path are its owner's and are followed.
        parts: the names of the folders that lead from it to this one.
    """

    def __init__(self, root: str | os.PathLike[str], *parts: str) -> None:
        self.root = root if isinstance(root, Path) else Path(root)  # to make a second one is slow
        self.parts = parts
        for part in parts:
            _check_name(part)

    @property
    def path(self) -> Path:
        """The path; it is not checked."""
        return self.root.joinpath(*self.parts)

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.root, *self.parts, name)

    def place(self, name: str) -> Path:
        """The path of a name in this folder, whatever it is, after a look at the way to it."""
        _check_name(name)
        return self._way() / name

    def file(self, name: str) -> Path:
        """The path of a regular file in this folder, or of one that may be made."""
        path = self.place(name)
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode  # a pipe or a device could block or act if it is opened
            if not stat.S_ISREG(mode):
                _refuse(path, mode)
        return path

    def open(self, name: str, mode: str = "rb", **text: Any) -> IO[Any]:
        """Open a regular file, as `open` does."""
        return self.file(name).open(mode, **text)

    def make(self) -> None:
        """Make the folder, and those above it."""
        self._way().mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if it does not exist."""
        with suppress(FileNotFoundError):
            return sorted(path.name for path in self._way().iterdir())
        return []

    def copy(self, name: str, target: Path) -> None:
        """Copy a file or a folder into the folder `target`; links are copied as links."""
        path = self.place(name)
        if path.is_dir():
            shutil.copytree(path, target / name, symlinks=True)
        else:
            shutil.copy(path, target / name, follow_symlinks=False)

    def remove(self) -> None:
        """Remove the folder with all it contains. A link in it is removed, not what it leads to."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._way())

    def check(self) -> None:
        """Check everything in the folder before code that opens files by their path uses it.

        Links that stay in the folder are allowed.

        Raises:
            StoreError: a link leads out of it, or there is a pipe or a device.
        """
        home = os.path.realpath(self._way())
        for path in Path(home).rglob("*"):
            with suppress(FileNotFoundError):  # others may remove it meanwhile
                mode = path.lstat().st_mode
                stays = stat.S_ISLNK(mode) and Path(os.path.realpath(path)).is_relative_to(home)
                if not (stays or stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                    _refuse(path, mode)

    def _way(self) -> Path:
        """The path of this folder; no part of it below the root is a link."""
        path = self.root
        for part in self.parts:
            path /= part
            if path.is_symlink():
                _refuse(path, path.lstat().st_mode)
        return path


def _check_name(name: str) -> None:
    """Raise StoreError unless it is the name of something in a folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StoreError(f"{name!r} is not a name of a file or a folder in a store")


def _refuse(path: Path, mode: int) -> NoReturn:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder"}
    kind = kinds.get(stat.S_IFMT(mode), "a socket or a device")
    raise StoreError(f"{path} is {kind}: the files of a sweep stay in its store. Remove it")


@contextmanager
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
        with suppress(OSError):
            old.remove()


def newest_first(root: Folder) -> list[Folder]:
    """The numbered folders; they may be damaged."""
    numbers = [name for name in root.names() if name.isdecimal()]
    return [root / name for name in sorted(numbers, key=int, reverse=True)]


def verified(folder: Folder, format_number: int, *names: str) -> dict[str, Any] | None:
    """The manifest of a folder if its format is right and it has these files, else None.

    The hash of each file that it names is right too.
    """
    with suppress(
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
