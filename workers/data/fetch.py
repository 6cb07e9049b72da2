"""Fetching public data sets from their makers, with checksums, and reading their archives."""

import hashlib
import os
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from search_spaces.errors import AutomlError, DataError
from search_spaces.plugins import nearest
from workers.files.disk import sha256

from .datasets import DATASETS, PublicDataset, Source

ATTEMPTS = 5
_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 30.0
Progress = Callable[[str, int, int], None]


class FetchError(AutomlError):
    """A file could not be fetched; the received part is kept, and the next call continues it."""


def fetch(
    name: str,
    folder: Path,
    progress: Progress = lambda file, done, total: None,
    datasets: Mapping[str, PublicDataset] | None = None,
) -> list[Path]:
    """Fetch every file of a data set into a folder; files that are there are checked and kept.

    Args:
        name: of the data set.
        folder: to write to.
        progress: called with the file's name, the received bytes and all bytes (0 if unknown).
        datasets: by default `workers.data.datasets.DATASETS`.

    Returns:
        The files that a workload reads.

    Raises:
        DataError: there is no such data set, or a file has the wrong hash.
        FetchError: a file could not be fetched completely.
    """
    known = DATASETS if datasets is None else datasets
    if name not in known:
        raise DataError(f"unknown data set {name!r}: {nearest(name, sorted(known))}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for source in known[name].sources:
        targets = [folder / member for member in source.unpack] or [folder / source.name]
        if not _complete(source, targets):
            _fetch_one(source, folder, progress)
        written += targets
    return written


def _complete(source: Source, targets: list[Path]) -> bool:
    """Whether all files are there with the right hashes."""
    hashes = list(source.unpack.values()) or [source.sha256]
    pairs = zip(targets, hashes, strict=True)
    return all(path.is_file() and bool(wanted) and sha256(path) == wanted for path, wanted in pairs)


def _fetch_one(source: Source, folder: Path, progress: Progress) -> None:
    part = folder / f"{source.name}.part"
    resumed = part.exists()
    download(source.url, part, progress)
    if source.sha256 and sha256(part) != source.sha256:
        found = sha256(part)
        part.unlink()
        if resumed:  # the part of an earlier call may be of another file
            _fetch_one(source, folder, progress)
            return
        raise DataError(
            f"{source.url} has the sha256 {found}, expected {source.sha256}; the file was deleted"
        )
    if source.unpack:
        _unpack(source, part, folder)
        part.unlink()
    else:
        part.replace(folder / source.name)


def _unpack(source: Source, archive: Path, folder: Path) -> None:
    """Check all wanted members, then write each atomically."""
    found = {name.rsplit("/", 1)[-1]: content for name, content in members(archive)}
    for name, wanted in source.unpack.items():
        if name not in found or hashlib.sha256(found[name]).hexdigest() != wanted:
            archive.unlink()
            raise DataError(
                f"{source.url}: member {name} is missing or has a wrong hash; the file was deleted"
            )
    for name in source.unpack:
        temporary = folder / f"{name}.{os.getpid()}"
        temporary.write_bytes(found[name])
        temporary.replace(folder / name)


def download(url: str, target: Path, progress: Progress = lambda file, done, total: None) -> None:
    """Fetch a file, continuing the part in `target`, and try again as long as more of it arrives.

    Raises:
        FetchError: the server refuses, or several tries in a row received nothing.
    """
    failures = 0
    problem = ""
    while failures < ATTEMPTS:
        before = _size(target)
        try:
            if _transfer(url, target, progress):
                return
            problem = "the transfer broke off"
        except urllib.error.HTTPError as error:
            if error.code == 416 and before:  # the file is complete, or it became shorter
                if before == _total(error.headers.get("Content-Range", "")):
                    return
                target.unlink()
            elif error.code < 500 and error.code != 429:
                problem = f"{url}: the server answers {error.code} {error.reason}"
                raise FetchError(problem) from error
            problem = f"the server answers {error.code}"
        except (OSError, HTTPException, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        failures = 0 if _size(target) > before else failures + 1
        if failures:
            time.sleep(min(0.05 * 4**failures, 10.0))
    raise FetchError(
        f"{url}: {problem}; {_size(target)} bytes are kept in {target}; try again to continue"
    )


def _transfer(url: str, target: Path, progress: Progress) -> bool:
    """Send one request for the missing bytes; return whether the file is complete now."""
    have = _size(target)
    request = urllib.request.Request(
        url, headers={"User-Agent": "automl", "Accept-Encoding": "identity"}
    )
    if have:
        request.add_header("Range", f"bytes={have}-")
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"only http and https are fetched, got {url}")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        partial = response.status == 206
        if partial and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise ValueError("the server sends another range than the requested one")
        have = have if partial else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else 0
        with target.open("ab" if partial else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                have += len(block)
                progress(target.name.removesuffix(".part"), have, total)
    return not total or have >= total


def _total(content_range: str) -> int:
    """The whole length in a header like `bytes */123`; -1 if it has none."""
    length = content_range.rpartition("/")[2]
    return int(length) if length.isdigit() else -1


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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
