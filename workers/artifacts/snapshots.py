"""Snapshots of a trial's folder at a location: objects, and a manifest that is written last.

    <location>/<sweep>/trials/<trial>/<attempt>/manifest-<sequence>.json
    <location>/<sweep>/trials/<trial>/<attempt>/object-<number>             a file's content

A manifest names each file of the folder with its object, sha256 and bytes, so a snapshot is there
as a whole or not at all. An attempt keeps its last two snapshots and never touches the objects of
a later attempt: one that was given up, and still runs on a node that was cut off, does no harm.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from search_spaces.errors import StoreError
from workers.files.folder import Folder

from .listing import NOT_KEPT
from .storage import ArtifactStorage

FORMAT: Final = 1
MAX_MANIFEST_BYTES: Final = 64 << 20
_ATTEMPT: Final = re.compile(r"[0-9]{6,9}")
_MANIFEST: Final = re.compile(r"manifest-([0-9]{8,12})\.json")
_OBJECT: Final = re.compile(r"object-[0-9]{8,12}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class DamagedArtifact(StoreError):
    """An object is missing or is not what was written; the message names it."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a snapshot.

    Args:
        object: the name of its object, in the folder of the attempt.
        sha256: of its content.
        size: in bytes.
        link: the target of a symbolic link, which has no object.
    """

    object: str = ""
    sha256: str = ""
    size: int = 0
    link: str = ""


@dataclass(frozen=True)
class Manifest:
    """A snapshot of a trial's folder.

    Args:
        attempt, sequence: which one it is; later ones are larger.
        host: the machine that has written it.
        files: by their path in the folder, with slashes.
    """

    attempt: int
    sequence: int
    host: str = ""
    files: Mapping[str, StoredFile] = field(default_factory=dict)

    @property
    def objects(self) -> set[str]:
        """The names of its objects."""
        return {file.object for file in self.files.values() if file.object}

    def to_json(self) -> bytes:
        """The manifest with a checksum of itself."""
        data = {"format": FORMAT, **asdict(self)}
        return json.dumps({**data, "sha256": _sum(data)}, indent=1, sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        """The inverse of `to_json`; raises ValueError if it is damaged or of another format."""
        data = json.loads(content)
        if not isinstance(data, dict) or data.pop("sha256", None) != _sum(data):
            raise ValueError("its checksum is wrong")
        if data.pop("format") != FORMAT:
            raise ValueError("a newer version has written it")
        files = {path: StoredFile(**file) for path, file in data.pop("files").items()}
        for path, file in files.items():
            _check(path, file)
        return cls(files=files, **data)


class Snapshots:
    """The snapshots of one trial.

    Args:
        storage: of the trial.
    """

    def __init__(self, storage: ArtifactStorage) -> None:
        self.storage = storage

    def found(self, before: int | None = None) -> list[tuple[int, int]]:
        """Attempt and sequence of each snapshot, the newest first.

        Args:
            before: only snapshots of earlier attempts than this one.
        """
        attempts = [int(name) for name in self.storage.names() if _ATTEMPT.fullmatch(name)]
        return [
            (attempt, int(match[1]))
            for attempt in sorted(attempts, reverse=True)
            if before is None or attempt < before
            for name in sorted((self.storage / attempt_name(attempt)).names(), reverse=True)
            if (match := _MANIFEST.fullmatch(name))
        ]

    def read(self, attempt: int, sequence: int) -> Manifest:
        """A manifest.

        Raises:
            DamagedArtifact: it is damaged or missing.
        """
        place = self.storage / attempt_name(attempt)
        name = manifest_name(sequence)
        try:
            found = Manifest.from_json(place.read_bytes(name, MAX_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise DamagedArtifact(f"{place.location}/{name} is missing") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedArtifact(f"{place.location}/{name} is damaged: {error}") from error
        if (found.attempt, found.sequence) != (attempt, sequence):
            raise DamagedArtifact(f"{place.location}/{name} is the manifest of another snapshot")
        return found

    def restore(self, manifest: Manifest, target: Folder) -> list[str]:
        """Write the files of a snapshot into a folder.

        Returns:
            A description of each object that is missing or damaged. Its file is not written, nor
            is any file of the numbered checkpoint that it belongs to.

        Raises:
            DamagedArtifact: a damaged file belongs to no numbered checkpoint, so that what is left
                would be half of a state.
        """
        place = self.storage / attempt_name(manifest.attempt)
        damaged: dict[str, str] = {}
        for path, file in manifest.files.items():
            if problem := _restored(place, path, file, target):
                damaged[path] = f"{place.location}/{file.object} ({path}) {problem}"
        for path, text in damaged.items():
            parts = _numbered(path, manifest)
            if parts is None:
                raise DamagedArtifact(text)
            _inner(target, parts).remove()
        return list(damaged.values())

    def write_manifest(self, manifest: Manifest) -> None:
        """Make a snapshot whose objects are written the newest one."""
        place = self.storage / attempt_name(manifest.attempt)
        place.write_bytes(manifest_name(manifest.sequence), manifest.to_json())

    def remove_before(self, attempt: int) -> None:
        """Remove the snapshots of earlier attempts."""
        for name in self.storage.names():
            if _ATTEMPT.fullmatch(name) and int(name) < attempt:
                (self.storage / name).remove_all()


def object_name(number: int) -> str:
    """The name of an object in the folder of its attempt."""
    return f"object-{number:08d}"


def manifest_name(sequence: int) -> str:
    """The name of a manifest in the folder of its attempt."""
    return f"manifest-{sequence:08d}.json"


def attempt_name(attempt: int) -> str:
    """The name of the folder of an attempt."""
    return f"{attempt:06d}"


def _sum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _check(path: str, file: StoredFile) -> None:
    """Raise ValueError unless a file may be written below a trial's folder."""
    parts = path.split("/")
    Folder("/", *parts)  # raises StoreError, which is a ValueError, for a part that is no name
    if parts[0] in NOT_KEPT or parts[0].startswith("."):
        raise ValueError(f"it names {path!r}, which is not kept")
    if file.link:
        if file.link.startswith("/"):
            raise ValueError(f"it has a link {path!r} to elsewhere")
    elif not (_OBJECT.fullmatch(file.object) and _HASH.fullmatch(file.sha256) and file.size >= 0):
        raise ValueError(f"its entry for {path!r} is malformed")


def _restored(place: ArtifactStorage, path: str, file: StoredFile, target: Folder) -> str:
    """Write a file of a snapshot; what is wrong with its object, "" for nothing."""
    *parts, name = path.split("/")
    folder = _inner(target, parts)
    folder.make()
    if file.link:
        folder.unlink(name)
        folder.place(name).symlink_to(file.link)
        return ""
    try:
        with folder.open(name, "wb") as written:
            found = place.read_into(file.object, written, file.size)
    except FileNotFoundError:
        problem = "is missing"
    else:
        problem = "" if found == file.sha256 else "is damaged: its sha256 is wrong"
    if problem:
        folder.unlink(name)
    return problem


def _inner(folder: Folder, parts: list[str]) -> Folder:
    for part in parts:
        folder = folder / part
    return folder


def _numbered(path: str, manifest: Manifest) -> list[str] | None:
    """The folder of the numbered checkpoint to which a file belongs; None if it belongs to none.

    Whoever loads such a checkpoint takes the one before if it is not there.
    """
    parts = path.split("/")[:-1]
    while parts:
        if parts[-1].isdecimal() and "/".join([*parts, "manifest.json"]) in manifest.files:
            return parts
        parts.pop()
    return None
