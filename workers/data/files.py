"""Small things that are done to files: waiting until they are on disk, and their hash. Imports no torch."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until a file's or a folder's content is on disk; raises OSError where it cannot be."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal; raises OSError where there is no regular file."""
    if not path.is_file():  # a pipe or a device in its place would be read for ever
        raise OSError(f"{path} is no regular file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
