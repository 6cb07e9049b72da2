"""Copies of a trial's folder at a location that every machine reaches, through fsspec.

    <location>/<sweep>/trials/<trial>/<attempt>/manifest-<number>.json
    <location>/<sweep>/trials/<trial>/<attempt>/object-<sha256>           a file's content

The manifest of a copy names its files with sha256 and bytes, and is written last: a copy is there
as a whole or not at all. An attempt never touches the objects of a later one, so one that was given
up, and still runs on a node that was cut off, does no harm.

fsspec finds credentials by itself: in the environment, in the files of the cloud's own tools, or in
its own configuration. They are never arguments here, so none reaches the ledger or a log.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from search_spaces.errors import StoreError, UsageError
from workers.failures import one_line
from workers.files.folder import Folder, sha256
from workers.protocol import DISPOSABLE, LOGS

# Folders of the workers, and what begins with a dot in the trial's own folder, are not kept.
NOT_KEPT: Final = (LOGS, "command")
READ_SECONDS: Final = 60.0  # until reading or removing gives up
PROBE_SECONDS: Final = 15.0  # until the check at the start gives up
_NAME: Final = re.compile(r"([0-9]{6,9})/(?:manifest-([0-9]{8,12})\.json|object-[0-9a-f]{64})")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
# No second call would help: the credentials, the name or the request itself is wrong.
_FINAL: Final = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    FileExistsError,
    ValueError,
    TypeError,
    ImportError,
)
T = TypeVar("T")


class DamagedCopy(StoreError):
    """An object is missing or is not what was written; the message names it."""


@dataclass(frozen=True)
class CopiedFile:
    """A file of a copy: sha256 of its content and its bytes, or the target of a symbolic link."""

    sha256: str = ""
    size: int = 0
    link: str = ""


@dataclass(frozen=True)
class Manifest:
    """A copy of a trial's folder.

    Args:
        attempt, number: which one it is; later ones are larger.
        files: by their path in the folder, with slashes.
    """

    attempt: int
    number: int
    files: Mapping[str, CopiedFile] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its object below the location."""
        return f"{self.attempt:06d}/manifest-{self.number:08d}.json"

    @property
    def objects(self) -> dict[str, int]:
        """The bytes of its files' objects, by their name below the location."""
        return {
            object_name(self.attempt, file): file.size
            for file in self.files.values()
            if not file.link
        }

    def to_json(self) -> bytes:
        """The manifest with a checksum of itself."""
        data = asdict(self)
        return json.dumps({**data, "sha256": _sum(data)}, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """The inverse of `to_json`; raises ValueError or TypeError if it is damaged."""
        data = json.loads(content)
        if not isinstance(data, dict) or data.pop("sha256", None) != _sum(data):
            raise ValueError("its checksum is wrong")
        files = {path: CopiedFile(**file) for path, file in data.pop("files").items()}
        for path, file in files.items():
            Folder("/", *path.split("/"))  # raises StoreError, a ValueError, for what is no name
            if path.startswith(".") or path.split("/")[0] in NOT_KEPT:
                raise ValueError(f"it names {path!r}, which is not kept")
            if not file.link and not _HASH.fullmatch(file.sha256):
                raise ValueError(f"its entry for {path!r} is malformed")
        return cls(files=files, **data)


class Copies:
    """The copies of one trial. Every method raises what fsspec raises.

    Args:
        location: of the trial, from `location.read_location` and a path below it.
    """

    def __init__(self, location: str) -> None:
        import fsspec

        self.location = location
        self._is_folder = location.startswith("/")
        options = {"auto_mkdir": True} if self._is_folder else {}
        self._files, root = fsspec.url_to_fs(location, use_listings_cache=False, **options)
        self._root = root.rstrip("/")

    def sizes(self) -> dict[str, int]:
        """The bytes of every object, by its name below the location."""
        try:
            found = self._files.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        start = len(self._root) + 1
        return {path[start:]: int(facts["size"] or 0) for path, facts in found.items()}

    def found(self, before: int | None = None) -> list[Manifest]:
        """The copies of attempts before this one, the newest first; their files are not read."""
        matches = [match for name in self.sizes() if (match := _NAME.fullmatch(name))]
        numbers = [(int(match[1]), int(match[2])) for match in matches if match[2]]
        return [
            Manifest(attempt, number)
            for attempt, number in sorted(numbers, reverse=True)
            if before is None or attempt < before
        ]

    def read(self, found: Manifest) -> Manifest:
        """A copy with its files; raises DamagedCopy if its manifest is damaged or missing."""
        try:
            manifest = Manifest.from_json(self._files.cat_file(self._path(found.name)))
        except FileNotFoundError as error:
            raise DamagedCopy(f"{self.location}/{found.name} is missing") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedCopy(f"{self.location}/{found.name} is damaged: {error}") from error
        if manifest.name != found.name:
            raise DamagedCopy(f"{self.location}/{found.name} is the manifest of another copy")
        return manifest

    def restore(self, found: Manifest, target: Folder) -> None:
        """Write the files of a copy into a folder.

        Raises:
            DamagedCopy: an object is missing or damaged; what is left is half of a state.
            StoreError: a link leads out of the folder.
        """
        manifest, sizes = self.read(found), self.sizes()
        for path, file in manifest.files.items():
            *parts, name = path.split("/")
            folder = Folder(target.root, *target.parts, *parts)
            folder.make()
            if file.link:
                folder.place(name).symlink_to(file.link)
                continue
            stored = object_name(manifest.attempt, file)
            if sizes.get(stored, file.size) != file.size:  # it may be endless
                problem = "is damaged: its sha256 is wrong, as is its size"
            else:
                problem = self._fetched(stored, folder.file(name), file.sha256)
            if problem:
                raise DamagedCopy(f"{self.location}/{stored} ({path}) {problem}")
        target.check()

    def _fetched(self, stored: str, path: Path, expected: str) -> str:
        """Write a file; what is wrong with its object, "" for nothing."""
        try:
            self._files.get_file(self._path(stored), str(path))
        except FileNotFoundError:
            return "is missing"
        return "" if sha256(path) == expected else "is damaged: its sha256 is wrong"

    def put(self, name: str, path: Path) -> None:
        """Write a file's content as an object."""
        self._files.put_file(str(path), self._path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write an object so that readers see all of it or nothing."""
        if not self._is_folder:  # an object store shows an object once it is complete
            self._files.pipe_file(self._path(name), content)
            return
        draft = self._path(f"{name}.draft")
        self._files.pipe_file(draft, content)
        self._files.mv(draft, self._path(name))

    def tidy(self, *kept: Manifest) -> None:
        """Remove what these copies of one attempt do not need, of it and of earlier attempts."""
        needed = {manifest.name for manifest in kept}.union(*(one.objects for one in kept))
        for name in self.sizes():
            match = _NAME.fullmatch(name)
            if match and int(match[1]) <= kept[-1].attempt and name not in needed:
                self.remove(name)

    def remove(self, name: str = "") -> None:
        """Remove an object, or all; do nothing if there is none."""
        with suppress(FileNotFoundError):
            if name:
                self._files.rm_file(self._path(name))
            else:
                self._files.rm(self._root, recursive=True)

    def check(self) -> None:
        """Write an object, read it and remove it, to see that this is possible."""
        name, content = ".probe", str(time.time_ns()).encode()
        self._files.pipe_file(self._path(name), content)
        if self._files.cat_file(self._path(name)) != content:
            raise OSError(f"{self.location} did not give back what was written to it")
        self.remove(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class SweepArtifacts:
    """The artifacts of a sweep.

    Args:
        location: of all sweeps, from `location.read_location`.
        folder: the name of the sweep's own folder there.
    """

    def __init__(self, location: str, folder: str) -> None:
        self.location = f"{location}/{folder}"

    def trial(self, number: int) -> str:
        """The location of a trial's copies."""
        return f"{self.location}/trials/{number}"

    def fetch(self, number: int, target: Path) -> bool:
        """Write the files of a trial's newest copy into a folder; returns whether there is one.

        Raises:
            UsageError: an object is missing or damaged, or the location does not answer.
        """

        def fetched() -> bool:
            copies = Copies(self.trial(number))
            found = copies.found()
            if found:
                copies.restore(found[0], Folder(target))
            return bool(found)

        return _tried(fetched, f"{self.location} cannot be read")

    def put(self, name: str, source: Path) -> str:
        """Copy the files of a folder without links to the location; returns where they are.

        Raises:
            UsageError: the location cannot be written.
        """
        place = f"{self.location}/{name}"

        def put() -> None:
            copies = Copies(place)
            copies.remove()
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    copies.put(path.relative_to(source).as_posix(), path)

        _tried(put, f"{place} cannot be written")
        return place

    def forget_checkpoints(self, number: int) -> None:
        """Remove the checkpoints of a trial; other files that it has written stay."""
        copies = Copies(self.trial(number))
        if not (found := copies.found()):
            return
        newest = copies.read(found[0])
        files = {p: f for p, f in newest.files.items() if p.split("/")[0] not in DISPOSABLE}
        if not files:
            copies.remove()
            return
        rest = Manifest(newest.attempt, newest.number + 1, files)
        copies.write(rest.name, rest.to_json())
        copies.tidy(rest)


def check_writable(location: str) -> None:
    """Write a small object to a location, read it and remove it; raises UsageError if it fails."""
    _tried(
        lambda: Copies(location).check(),
        f"artifacts: {location} cannot be written from this machine. Check the name and the "
        "credentials in the environment",
        PROBE_SECONDS,
    )


def object_name(attempt: int, file: CopiedFile) -> str:
    """The name of a file's object below the location of its trial."""
    return f"{attempt:06d}/object-{file.sha256}"


def retried(call: Callable[[], T], seconds: float) -> T:
    """The result of `call`; after an error that may pass it is called again for some seconds.

    Args:
        call: has no effect if it raises, or the same effect if it is called twice.
    """
    end = time.monotonic() + seconds
    delay = 0.5
    while True:
        try:
            return call()
        except Exception as error:
            no_credentials = "Credentials" in type(error).__name__
            if no_credentials or isinstance(error, _FINAL) or time.monotonic() > end:
                raise
        time.sleep(delay)
        delay = min(2 * delay, 30.0)


def _tried(call: Callable[[], T], problem: str, seconds: float = READ_SECONDS) -> T:
    try:
        return retried(call, seconds)
    except Exception as error:
        raise UsageError(f"{problem}: {one_line(error)}") from error


def _sum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
