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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from search_spaces.errors import StoreError, UsageError
from workers.failures import one_line
from workers.files.folder import Folder, sha256
from workers.protocol import DISPOSABLE, LOGS

NONE: Final = "none"  # a person's word for: use no location
# Folders of the workers, and what begins with a dot in the trial's own folder, are not kept.
NOT_KEPT: Final = (LOGS, "command")
_NAME: Final = re.compile(r"([0-9]{6,9})/(?:manifest-([0-9]{8,12})\.json|object-[0-9a-f]{64})")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


def read_location(text: str) -> str:
    """A location in its one form: an absolute folder, or a URL without a slash at its end.

    Args:
        text: such as "s3://bucket/prefix", "/shared/sweeps" or "none"; "" for none.

    Returns:
        The location; "" if there is none, "none" if the person says so.

    Raises:
        UsageError: it holds a password, an option or another URL. The message never holds these.
    """
    if text in ("", NONE):
        return text
    if "://" not in text or text.startswith("file://"):
        return str(Path(text.removeprefix("file://")).expanduser().absolute())
    url = urlsplit(text)
    account, _, place = url.netloc.rpartition("@")
    if url.query or url.fragment or ":" in account or "::" in text:
        raise UsageError(
            f"artifacts: a password or an option in the URL of {url.scheme}://{place} would show "
            "in the ledger and in `ps`: leave it out, and set the credentials in the environment "
            "or in the configuration of fsspec on every node"
        )
    return f"{url.scheme}://{text.partition('://')[2].rstrip('/')}"


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
        files = [file for file in self.files.values() if not file.link]
        return {object_name(self.attempt, file): file.size for file in files}

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
            kept = not path.startswith(".") and path.split("/")[0] not in NOT_KEPT
            if not kept or not (file.link or _HASH.fullmatch(file.sha256)):
                raise ValueError(f"its entry for {path!r} is malformed")
        return cls(files=files, **data)


class Copies:
    """The copies of one trial. Every method raises what fsspec raises.

    Args:
        location: of the trial, from `read_location` and a path below it.
    """

    def __init__(self, location: str) -> None:
        import fsspec

        self.location = location
        options = {"auto_mkdir": True} if location.startswith("/") else {}
        self._files, root = fsspec.url_to_fs(location, use_listings_cache=False, **options)
        self._root = root.rstrip("/")

    def sizes(self) -> dict[str, int]:
        """The bytes of every object, by its name below the location."""
        with suppress(FileNotFoundError):
            found = self._files.find(self._root, detail=True)
            return {path[len(self._root) + 1 :]: int(f["size"] or 0) for path, f in found.items()}
        return {}

    def found(self, before: float = float("inf")) -> list[Manifest]:
        """The copies of attempts before this one, the newest first; their files are not read."""
        matches = [match for name in self.sizes() if (match := _NAME.fullmatch(name))]
        numbers = [(int(match[1]), int(match[2])) for match in matches if match[2]]
        return [Manifest(*pair) for pair in sorted(numbers, reverse=True) if pair[0] < before]

    def read(self, found: Manifest) -> Manifest:
        """A copy with its files; raises DamagedCopy if its manifest is damaged or missing."""
        try:
            return Manifest.from_json(self._files.cat_file(f"{self._root}/{found.name}"))
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedCopy(f"{self.location}/{found.name} is damaged: {error}") from error

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
            stored, problem = object_name(found.attempt, file), ""
            if stored not in sizes:
                problem = "missing"
            elif sizes[stored] != file.size:  # it may be endless
                problem = "damaged: its sha256 is wrong, as is its size"
            else:
                self._files.get_file(f"{self._root}/{stored}", str(folder.file(name)))
                if sha256(folder.file(name)) != file.sha256:
                    problem = "damaged: its sha256 is wrong"
            if problem:
                raise DamagedCopy(f"{self.location}/{stored} ({path}) is {problem}")
        target.check()

    def put(self, name: str, path: Path) -> None:
        """Write a file's content as an object."""
        self._files.put_file(str(path), f"{self._root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._files.pipe_file(f"{self._root}/{name}", content)

    def tidy(self, *kept: Manifest) -> None:
        """Remove what these copies of one attempt do not need, of it and of earlier attempts."""
        needed = {manifest.name for manifest in kept}.union(*(one.objects for one in kept))
        for name in self.sizes().keys() - needed:
            match = _NAME.fullmatch(name)
            if match and int(match[1]) <= kept[-1].attempt:
                self.remove(name)

    def remove(self, name: str = "") -> None:
        """Remove an object, or all; do nothing if there is none."""
        with suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}".rstrip("/"), recursive=not name)


class SweepArtifacts:
    """The artifacts of a sweep. Its methods raise UsageError if the location does not answer.

    Args:
        location: of all sweeps, from `read_location`.
        folder: the name of the sweep's own folder there.
    """

    def __init__(self, location: str, folder: str) -> None:
        self.location = f"{location}/{folder}"

    def trial(self, number: int) -> str:
        """The location of a trial's copies."""
        return f"{self.location}/trials/{number}"

    def fetch(self, number: int, target: Path) -> bool:
        """Write the files of a trial's newest copy into a folder; returns whether there is one."""
        with _explained(f"{self.location} cannot be read"):
            copies = Copies(self.trial(number))
            found = copies.found()
            for newest in found[:1]:
                copies.restore(newest, Folder(target))
        return bool(found)

    def put(self, name: str, source: Path) -> str:
        """Copy the files of a folder without links to the location; returns where they are."""
        place = f"{self.location}/{name}"
        with _explained(f"{place} cannot be written"):
            copies = Copies(place)
            copies.remove()
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    copies.put(path.relative_to(source).as_posix(), path)
        return place

    def forget_checkpoints(self, number: int) -> None:
        """Remove the checkpoints of a trial; other files that it has written stay."""
        copies = Copies(self.trial(number))
        for found in copies.found()[:1]:
            files = copies.read(found).files
            rest = {p: file for p, file in files.items() if p.split("/")[0] not in DISPOSABLE}
            manifest = Manifest(found.attempt, found.number + 1, rest)
            copies.write(manifest.name, manifest.to_json())
            copies.tidy(manifest)


def check_writable(location: str) -> None:
    """Write a small object to a location and remove it; raises UsageError if that fails."""
    content = str(time.time_ns()).encode()
    with _explained(
        f"artifacts: {location} cannot be written from this machine. Check the name and the "
        "credentials in the environment"
    ):
        copies = Copies(location)
        copies.write(".probe", content)
        copies.remove(".probe")


def object_name(attempt: int, file: CopiedFile) -> str:
    """The name of a file's object below the location of its trial."""
    return f"{attempt:06d}/object-{file.sha256}"


@contextmanager
def _explained(problem: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise UsageError(f"{problem}: {one_line(error)}") from error


def _sum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
