"""Objects below a location: written whole, read, listed and removed, through fsspec.

`retried` calls again what a store far away refuses for a moment.

fsspec finds credentials by itself: in the environment, in the files of the cloud's own tools, or in
its own configuration. They are never arguments here, so none reaches the ledger or a log.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
import uuid
from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

from search_spaces.errors import StoreError

PIECE_BYTES: Final = 1 << 20  # read and hashed at a time
PART_BYTES: Final = 8 << 20  # of an upload in parts; an object has at most 10,000 of them
MAX_PARTS: Final = 5_000


class ArtifactStorage:
    """The objects below a location; a name is a path below it, with slashes.

    Every method raises what fsspec raises: an OSError, or an error of the store's own library.

    Args:
        location: from `location.read_location`, with or without a path below it.
    """

    def __init__(self, location: str) -> None:
        import fsspec

        self.location = location
        self._files, self._root = fsspec.url_to_fs(location, use_listings_cache=False)
        self._local = location.startswith("/")

    def __truediv__(self, name: str) -> ArtifactStorage:
        """The objects below a name."""
        below = object.__new__(ArtifactStorage)
        below.location = f"{self.location}/{name}"
        below._files, below._root, below._local = self._files, f"{self._root}/{name}", self._local
        return below

    def write(self, name: str, source: IO[bytes], size: int) -> str:
        """Write an object of `size` bytes from an open file; returns their sha256.

        Raises:
            EOFError: the file has fewer bytes.
        """
        block = max(PART_BYTES, -(-size // MAX_PARTS))
        hashed = hashlib.sha256()

        def copy(target: Any) -> None:
            left = size
            while left:
                piece = source.read(min(PIECE_BYTES, left))
                if not piece:
                    raise EOFError(f"{left} bytes of {name} are missing")
                hashed.update(piece)
                target.write(piece)
                left -= len(piece)

        self._write_whole(name, copy, block)
        return hashed.hexdigest()

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write an object; it replaces one of that name."""
        self._write_whole(name, lambda target: target.write(content), PART_BYTES)

    def read_bytes(self, name: str, most: int) -> bytes:
        """The content of an object.

        Raises:
            FileNotFoundError: there is none.
            StoreError: it has more than `most` bytes.
        """
        with self._files.open(self._path(name), "rb", block_size=PART_BYTES) as file:
            found: bytes = file.read(most + 1)
        if len(found) > most:
            raise StoreError(f"{self.location}/{name} has more than {most} bytes")
        return found

    def read_into(self, name: str, target: IO[bytes], size: int) -> str:
        """Copy an object into an open file, at most `size` + 1 bytes; returns their sha256.

        Raises:
            FileNotFoundError: there is none.
        """
        hashed = hashlib.sha256()
        left = size + 1
        options = {"cache_type": "readahead", "block_size": PART_BYTES}
        with self._files.open(self._path(name), "rb", **options) as source:
            while left and (piece := source.read(min(PIECE_BYTES, left))):
                hashed.update(piece)
                target.write(piece)
                left -= len(piece)
        return hashed.hexdigest()

    def sizes(self) -> dict[str, int]:
        """The bytes of every object below this place, by name."""
        try:
            found = self._files.find(self._root, detail=True, withdirs=False)
        except FileNotFoundError:
            return {}
        start = len(self._root.rstrip("/")) + 1
        return {path[start:]: int(facts["size"] or 0) for path, facts in found.items()}

    def names(self) -> list[str]:
        """The names directly below this place, sorted; none if there is nothing."""
        try:
            found = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def remove(self, name: str) -> None:
        """Remove an object; do nothing if there is none."""
        try:
            self._files.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def remove_all(self) -> None:
        """Remove everything below this place."""
        try:
            self._files.rm(self._root, recursive=True)
        except FileNotFoundError:
            return

    def probe(self) -> None:
        """Write an object, read it and remove it, to see that this is possible."""
        name, content = f".probe-{uuid.uuid4().hex}", uuid.uuid4().bytes
        self.write_bytes(name, content)
        try:
            if self.read_bytes(name, 100) != content:
                raise OSError(f"{self.location} did not give back what was written to it")
        finally:
            self.remove(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write_whole(self, name: str, copy: Callable[[Any], object], block: int) -> None:
        """Write an object so that readers see all of it or nothing."""
        if not self._local:  # an object store shows an object once it is complete
            file = self._files.open(self._path(name), "wb", block_size=block)
            try:
                copy(file)
            except BaseException:
                _drop(file)
                raise
            file.close()
            return
        folder, _, last = self._path(name).rpartition("/")
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        temporary = f"{folder}/.{last}.{uuid.uuid4().hex}"
        try:
            with self._files.open(temporary, "wb") as file:
                copy(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path(name))  # noqa: PTH105
        except BaseException:
            self.remove_quietly(temporary)
            raise

    def remove_quietly(self, path: str) -> None:
        """Remove a file of this place by its path, if that is possible."""
        try:
            self._files.rm_file(path)
        except OSError:
            return


def _drop(file: Any) -> None:
    """Give up an upload; `close` would complete it."""
    try:
        file.discard()
    except Exception:  # the store forgets uploads that are never completed
        pass
    finally:
        file.closed = True


T = TypeVar("T")
FIRST_SECONDS: Final = 0.5
MAX_SECONDS: Final = 30.0
# No second call would help: the credentials, the name or the request itself is wrong.
_FINAL: Final = (
    PermissionError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    ValueError,
    TypeError,
    ImportError,
    NotImplementedError,
)
_NO_CREDENTIALS: Final = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if type(error).__name__ in _NO_CREDENTIALS or isinstance(error, _FINAL):
        return False
    return isinstance(error, Exception)


def retried(
    call: Callable[[], T],
    seconds: float,
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """The result of `call`, which is called again after transient errors.

    The delay doubles from 0.5 s to 30 s; a random part of it keeps workers from calling all at a
    time.

    Args:
        call: has no effect if it raises, or the same effect if it is called twice.
        seconds: after this many seconds the error is raised.
        wait: waits for a delay; True if the caller no longer wants the result.

    Raises:
        Exception: the last error of `call`.
    """
    end = time.monotonic() + seconds
    delay = FIRST_SECONDS
    while True:
        try:
            return call()
        except Exception as error:
            left = end - time.monotonic()
            if left <= 0 or not is_transient(error):
                raise
            if wait(min(delay * random.uniform(0.5, 1.0), left)):
                raise
        delay = min(2 * delay, MAX_SECONDS)


def described(error: BaseException) -> str:
    """An error in a line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
