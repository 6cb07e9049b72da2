"""Flushing files to disk and hashing them; imports no torch."""

import hashlib
import os
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until the content of a file or a folder is on disk; raises OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal; raises OSError if it is not a regular file."""
    if not path.is_file():  # a pipe or a device may never end
        raise OSError(f"{path} is not a regular file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
