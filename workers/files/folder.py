"""A folder whose content may come from a stranger: nothing in it leads out of it.

Each folder on the way is opened by name in the one before it (`openat` with O_NOFOLLOW), so a link
is noticed at any depth. Only regular files are opened: a pipe or a device could block or act.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from search_spaces.errors import StoreError

MAX_DEPTH: Final = 100  # folders in folders; each takes a descriptor and a call
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODES: Final = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT,  # truncated once it is known to be a file of this folder
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "+": os.O_RDWR | os.O_CREAT,
}
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
}


class Folder:
    """A folder below a trusted one; it need not exist. It holds nothing open.

    Every method raises StoreError if a symbolic link, a pipe, a device or a file with a second name
    (hard link) is in the way, and OSError if the system refuses.

    Args:
        root: the trusted folder; links in its path are its owner's and are followed.
        parts: the names of the folders that lead from it to this one.
    """

    def __init__(self, root: str | os.PathLike[str], *parts: str) -> None:
        self.root = root if isinstance(root, Path) else Path(root)  # to make a second one is slow
        self.parts = parts
        for part in parts:
            _check_name(part)

    @classmethod
    def below(cls, root: str | os.PathLike[str], path: str | os.PathLike[str]) -> Folder:
        """The folder of a path that is the root or below it.

        Raises:
            StoreError: the path is not below the root.
        """
        try:
            parts = Path(path).relative_to(root).parts
        except ValueError as error:
            raise StoreError(f"{path} is not in {root}") from error
        return cls(root, *parts)

    @property
    def path(self) -> Path:
        """The path, for messages; it is not checked."""
        return self.root.joinpath(*self.parts)

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.root, *self.parts, name)

    @contextlib.contextmanager
    def descriptor(self, *, create: bool = False) -> Iterator[int]:
        """A descriptor of this folder; `create` makes it and the folders above it.

        Raises:
            FileNotFoundError: it does not exist.
        """
        if create:
            self.root.mkdir(parents=True, exist_ok=True)
        found = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        path = self.root
        try:
            for part in self.parts:
                path /= part
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=found)
                above = found
                try:
                    found = os.open(part, _FOLDER, dir_fd=above)
                except NotADirectoryError:
                    _refuse(path, path.lstat())
                os.close(above)
            yield found
        finally:
            os.close(found)

    def open(self, name: str, mode: str = "rb", **text: Any) -> IO[Any]:
        """Open a regular file: modes r, w, a and x, with "b" for bytes; `text` is as in `open`.

        Raises:
            StoreError: it is not a regular file, or is written to and has another name elsewhere.
        """
        return os.fdopen(self.open_descriptor(name, mode[0]), mode, **text)

    def open_descriptor(self, name: str, mode: str) -> int:
        """Like `open`, for one of the modes r, w, a, x and + (in place); returns a descriptor."""
        _check_name(name)
        with self.descriptor() as folder:
            facts = _facts(folder, name)
            if facts is not None:  # a pipe or a device could act if it is opened
                self._check_file(name, facts, written=mode != "r")
            found = os.open(name, _MODES[mode] | _FILE, 0o666, dir_fd=folder)
        try:
            self._check_file(name, os.fstat(found), written=mode != "r")
            if mode == "w":
                os.ftruncate(found, 0)
            os.set_blocking(found, True)
        except BaseException:
            os.close(found)
            raise
        return found

    @contextlib.contextmanager
    def opened_path(self, name: str) -> Iterator[str]:
        """A path of the opened file, for a library that reads a file by its path."""
        with self.open(name) as file:
            yield descriptor_path(file.fileno()) or str(self.path / name)

    def check_file(self, name: str, *, written: bool) -> os.stat_result | None:
        """Check a file without opening it: closing it would free the locks that SQLite has on it.

        Returns:
            Its facts; None if there is no file.
        """
        with self.descriptor() as folder:
            facts = _facts(folder, name)
        if facts is not None:
            self._check_file(name, facts, written=written)
        return facts

    def read(self, name: str, most: int = 1 << 24) -> bytes:
        """The content of a file.

        Raises:
            StoreError: it has more than `most` bytes.
        """
        with self.open(name) as file:
            found: bytes = file.read(most + 1)
        if len(found) > most:
            raise StoreError(f"{self.path / name} has more than {most} bytes")
        return found

    def sha256(self, name: str) -> str:
        """The sha256 of a file, in hexadecimal."""
        with open(self.open_descriptor(name, "r"), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def make(self) -> None:
        """Make the folder, and those above it."""
        with self.descriptor(create=True):
            pass

    def names(self) -> list[str]:
        """The names in the folder, sorted; none if it does not exist."""
        with contextlib.suppress(FileNotFoundError), self.descriptor() as folder:
            return _names(folder)
        return []

    def is_file(self, name: str) -> bool:
        """Whether there is a regular file of this name."""
        with contextlib.suppress(FileNotFoundError), self.descriptor() as folder:
            facts = _facts(folder, name)
            return facts is not None and stat.S_ISREG(facts.st_mode)
        return False

    def copy(self, name: str, target: Path) -> None:
        """Copy a file or a folder into the folder `target`, where the name must be free.

        Links inside are copied as links if they are relative, else left out; see `check`.
        """
        with self.descriptor() as folder:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            link = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(mode) else ""
        if link:
            if not link.startswith("/"):
                (target / name).symlink_to(link)
        elif stat.S_ISDIR(mode):
            (target / name).mkdir()
            for inner in (self / name).names():
                (self / name).copy(inner, target / name)
        else:
            with self.open(name) as source, (target / name).open("xb") as file:
                shutil.copyfileobj(source, file)

    def rename(self, old: str, new: str) -> None:
        """Give a file or a folder in this folder another name; a file of that name is replaced."""
        _check_name(old)
        _check_name(new)
        with self.descriptor() as folder:
            os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself; do nothing if there is none."""
        _check_name(name)
        with contextlib.suppress(FileNotFoundError), self.descriptor() as folder:
            os.unlink(name, dir_fd=folder)

    def remove(self) -> None:
        """Remove the folder with all it contains. A link in it is removed, not what it leads to."""
        for _ in self.walk():  # raises if it would go too deep
            pass
        above = Folder(self.root, *self.parts[:-1])
        with contextlib.suppress(FileNotFoundError), above.descriptor() as folder:
            shutil.rmtree(self.parts[-1], dir_fd=folder)

    def flush(self) -> None:
        """Wait until the names in the folder are on disk."""
        with self.descriptor() as folder:
            os.fsync(folder)

    def size(self) -> int:
        """Bytes of the regular files in the folder and below it; 0 if it does not exist."""
        found = (facts for _, _, facts in self.walk())
        return sum(facts.st_size for facts in found if stat.S_ISREG(facts.st_mode))

    def walk(self) -> Iterator[tuple[Folder, str, os.stat_result]]:
        """Everything in the folder and in those below it: its folder, name and facts.

        Raises:
            StoreError: folders are nested more than `MAX_DEPTH` deep.
        """
        if len(self.parts) > MAX_DEPTH:
            raise StoreError(f"{self.path} is nested more than {MAX_DEPTH} deep: remove it")
        found: dict[str, os.stat_result | None] = {}
        with contextlib.suppress(FileNotFoundError), self.descriptor() as folder:
            found = {name: _facts(folder, name) for name in _names(folder)}
        for name, facts in found.items():
            if facts is not None:  # else it was removed meanwhile
                yield self, name, facts
                if stat.S_ISDIR(facts.st_mode):
                    yield from (self / name).walk()

    def check(self) -> None:
        """Check everything in the folder before code that opens files by their path uses it.

        Links that stay in the folder are allowed.

        Raises:
            StoreError: a link leads out of it, or there is a pipe or a device.
        """
        home = os.path.realpath(self.path)
        files: dict[tuple[int, int], tuple[Path, int]] = {}  # those with several names
        seen: Counter[tuple[int, int]] = Counter()
        for folder, name, facts in self.walk():
            kind, path = stat.S_IFMT(facts.st_mode), folder.path / name
            leads_out = kind == stat.S_IFLNK and not _is_inside(os.path.realpath(path), home)
            if leads_out or kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK):
                _refuse(path, facts)
            if kind == stat.S_IFREG and facts.st_nlink > 1:
                key = facts.st_dev, facts.st_ino
                files.setdefault(key, (path, facts.st_nlink))
                seen[key] += 1
        for key, (path, num_names) in files.items():
            if seen[key] != num_names:
                raise _second_name(path)

    def _check_file(self, name: str, facts: os.stat_result, *, written: bool) -> None:
        if not stat.S_ISREG(facts.st_mode):
            _refuse(self.path / name, facts)
        if written and facts.st_nlink > 1:
            raise _second_name(self.path / name)


def _check_name(name: str) -> None:
    """Raise StoreError unless it is the name of something in a folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StoreError(f"{name!r} is not a name of a file or a folder in a store")


def _facts(folder: int, name: str) -> os.stat_result | None:
    """The facts of a name itself, of a link too; None if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return sorted(entry.name for entry in found)


def _refuse(path: Path, facts: os.stat_result) -> NoReturn:
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "no regular file")
    raise StoreError(f"{path} is {kind}: the files of a sweep stay in its store. Remove it")


def _is_inside(path: str, folder: str) -> bool:
    return os.path.commonpath([folder, path]) == folder


def _second_name(path: Path) -> StoreError:
    return StoreError(
        f"{path} has another name elsewhere (a hard link), so to write to it would change a file "
        "outside of the store. Replace it by a copy of itself"
    )


def descriptor_path(descriptor: int) -> str | None:
    """A path of an open file or folder; None if the system has none."""
    path = f"/proc/self/fd/{descriptor}"
    return path if os.path.lexists(path) else None
