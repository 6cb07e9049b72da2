"""Reading data sets from untrusted tar archives, in memory: nothing is unpacked to disk."""

import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from search_spaces.errors import DataError

MAX_MEMBERS = 1_000_000
MAX_BYTES = 4 << 30


def members(
    path: Path, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted regular file of a tar archive, in its order.

    Links and devices are never followed. The whole archive is refused if the path of any member
    leads out of it.

    Args:
        path: of the archive: plain, gzip, bzip2 or xz.
        wanted: whether a member of that name is read; every name is checked in any case.

    Raises:
        DataError: the archive is missing, damaged or too large, or a path leads out of it.
    """
    total = 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for count, member in enumerate(archive):
                total += member.size
                _check(path, member.name, count, total)
                if member.isfile() and wanted(member.name):
                    file = archive.extractfile(member)
                    yield member.name, file.read() if file else b""
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # read to the end, to find a wrong checksum or a missing end
    except FileNotFoundError as error:
        raise DataError(f"there is no archive {path}") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a readable tar archive: {error}") from error


def _check(path: Path, name: str, count: int, total: int) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if (
        parts.is_absolute()
        or ".." in parts.parts
        or ":" in "".join(parts.parts[:1])
        or "\0" in name
    ):
        raise DataError(
            f"{path}: the member {name!r} leads out of the folder; the archive is not used"
        )
    if count >= MAX_MEMBERS or total > MAX_BYTES:
        raise DataError(
            f"{path}: more than {MAX_MEMBERS} members or {MAX_BYTES} bytes; the archive is not used"
        )


def find(folder: Path, names: tuple[str, ...]) -> Path:
    """The first of `names` (files or folders) that is in `folder`, or `folder` if that is its name.

    Raises:
        DataError: there is none.
    """
    if folder.name in names and folder.exists():
        return folder
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise DataError(
        f"{folder} holds none of {', '.join(names)}; data.dir must name the folder that does"
    )
