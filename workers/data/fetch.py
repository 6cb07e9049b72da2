"""Fetching public data sets from where their makers put them, with checksums, and going on after a broken transfer."""

from __future__ import annotations

import hashlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from search_spaces.errors import AutomlError, DataError
from search_spaces.plugins import nearest

from .archives import members
from .datasets import DATASETS, Dataset, Source
from .files import sha256

ATTEMPTS = 5
_BLOCK = 1 << 18
_TIMEOUT_SECONDS = 30.0
Progress = Callable[[str, int, int], None]


class FetchError(AutomlError):
    """A file could not be fetched; what was received is kept, so that the next try goes on from there."""


def fetch(
    name: str,
    folder: Path,
    progress: Progress = lambda file, done, total: None,
    datasets: Mapping[str, Dataset] | None = None,
) -> list[Path]:
    """Fetch every file of a data set into a folder; files that are there already are checked and kept.

    Args:
        progress: called with the file's name, the bytes that are there and the bytes in all (0 where not known).
        datasets: what can be fetched; by default `workers.data.datasets.DATASETS`.

    Returns:
        The files that a workload reads.

    Raises:
        DataError: there is no such data set, or a file is not what it should be.
        FetchError: a file could not be fetched whole.
    """
    known = DATASETS if datasets is None else datasets
    if name not in known:
        raise DataError(f"unknown data set {name!r}: {nearest(name, sorted(known))}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for source in known[name].sources:
        targets = [folder / member for member in source.unpack] or [folder / source.name]
        if not _there(source, targets):
            _fetch_one(source, folder, progress)
        written += targets
    return written


def _there(source: Source, targets: list[Path]) -> bool:
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
        if resumed:  # what was there before may have been of another file
            _fetch_one(source, folder, progress)
            return
        raise DataError(
            f"{source.url} has the sha256 {found}, {source.sha256} was expected; it was not kept"
        )
    if source.unpack:
        _unpack(source, part, folder)
        part.unlink()
    else:
        part.replace(folder / source.name)


def _unpack(source: Source, archive: Path, folder: Path) -> None:
    """Write the wanted members, each whole or not at all, once all have been checked."""
    found = {name.rsplit("/", 1)[-1]: content for name, content in members(archive)}
    for name, wanted in source.unpack.items():
        if name not in found or hashlib.sha256(found[name]).hexdigest() != wanted:
            archive.unlink()
            raise DataError(
                f"{source.url}: its member {name} is missing or not what it should be; it was not kept"
            )
    for name in source.unpack:
        temporary = folder / f"{name}.{os.getpid()}"
        temporary.write_bytes(found[name])
        temporary.replace(folder / name)


def download(url: str, target: Path, progress: Progress = lambda file, done, total: None) -> None:
    """Fetch a file, going on from what `target` already holds, again and again while more of it arrives.

    Raises:
        FetchError: the server refuses, or several tries in a row brought nothing.
    """
    failures, problem = 0, ""
    while failures < ATTEMPTS:
        before = _size(target)
        try:
            if _transfer(url, target, progress):
                return
            problem = "the transfer broke off"
        except urllib.error.HTTPError as error:
            if (
                error.code == 416 and before
            ):  # nothing is left to send, or the file has become shorter
                if before == _total(error.headers.get("Content-Range", "")):
                    return
                target.unlink()
            elif error.code < 500 and error.code != 429:
                raise FetchError(
                    f"{url}: the server answers {error.code} {error.reason}"
                ) from error
            problem = f"the server answers {error.code}"
        except (OSError, HTTPException, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        failures = 0 if _size(target) > before else failures + 1
        if failures:
            time.sleep(min(0.05 * 4**failures, 10.0))
    raise FetchError(
        f"{url}: {problem}; {_size(target)} bytes are kept in {target}, try again to go on from there"
    )


def _transfer(url: str, target: Path, progress: Progress) -> bool:
    """One request for what is missing; whether the file is whole now."""
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
            raise ValueError("the server sends another range than was asked for")
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
    """The whole length that `bytes */123` tells."""
    length = content_range.rpartition("/")[2]
    return int(length) if length.isdigit() else -1


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
