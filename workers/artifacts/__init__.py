"""Keeps copies of a trial's folder at a location that every machine reaches, through fsspec.

    <location>/<sweep>/trials/<trial>/<attempt>/manifest-<number>.json
    <location>/<sweep>/trials/<trial>/<attempt>/object-<sha256>           a file's content

The manifest of a copy names its files with sha256 and bytes, and is written last: a copy is there
as a whole or not at all. An attempt never touches the objects of a later one, so one that was given
up, and still runs on a node that was cut off, does no harm.

fsspec finds credentials by itself: in the environment, in the files of the cloud's own tools, or in
its own configuration. They are never arguments here, so none reaches the ledger or a log.

A thread looks for new checkpoints and uploads them beside the training. On the node the folder is
a working copy: at the end of an attempt, once everything is at the location, it is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from search_spaces.errors import StoreError, UsageError
from workers.failures import one_line
from workers.files import Folder, sha256
from workers.protocol import DISPOSABLE, LOGS

if TYPE_CHECKING:
    from workers.context import Context

NONE: Final = "none"  # a person's word for: use no location
# Folders of the workers, and what begins with a dot in the trial's own folder, are not kept.
NOT_KEPT: Final = (LOGS, "command")
_NAME: Final = re.compile(r"([0-9]{6,9})/(?:manifest-([0-9]{8,12})\.json|object-[0-9a-f]{64})")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
LOOK_SECONDS: Final = 2.0  # between two looks for files that nobody has announced
AGAIN: Final = 15  # times as long after an upload that has failed
FINISH_SECONDS: Final = 300.0  # until an attempt gives up to write its files at its end
# In the trial's folder: the attempt whose files these are; locked by the rank that restores them.
MARK: Final = ".artifacts.mark"
_DRAFT: Final = re.compile(r"\.[0-9]+(\.[0-9]+)?")  # a checkpoint that is being written
# A file as it was: size, time of its last change, target if it is a link. If these are the same,
# so is its content.
Listing = dict[str, tuple[int, int, str]]


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
class Manifest:
    """A copy of a trial's folder.

    Args:
        attempt, number: which one it is; later ones are larger.
        files: by their path in the folder, with slashes. The facts of each are the `sha256` of its
            content and its `size` in bytes, or `link`, the target of a symbolic link.
    """

    attempt: int
    number: int
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its object below the location."""
        return f"{self.attempt:06d}/manifest-{self.number:08d}.json"

    def to_json(self) -> bytes:
        """The manifest with a checksum of itself."""
        data = vars(self)
        return json.dumps({**data, "sha256": _sum(data)}, indent=1, sort_keys=True).encode()


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
            data = json.loads(self._files.cat_file(f"{self._root}/{found.name}"))
            sound = data.pop("sha256") == _sum(data)
            for path, file in data["files"].items():
                Folder("/", *path.split("/"))  # raises StoreError, a ValueError, for no name
                kept = not path.startswith(".") and path.split("/")[0] not in NOT_KEPT
                sound &= kept and bool(file["link"] or _HASH.fullmatch(file["sha256"]))
            if not sound:
                raise ValueError("its checksum or an entry is wrong")
            return Manifest(**data)
        except (
            FileNotFoundError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
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
            if file["link"]:
                folder.place(name).symlink_to(file["link"])
                continue
            stored = object_name(found.attempt, file)
            sized = sizes.get(stored) == file["size"]
            if sized:  # else it may be endless
                self._files.get_file(f"{self._root}/{stored}", str(folder.file(name)))
            if not sized or sha256(folder.file(name)) != file["sha256"]:
                what = "its sha256 is wrong" + ("" if sized else ", as is its size")
                problem = f"damaged: {what}" if stored in sizes else "missing"
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
        files = [(one.attempt, file) for one in kept for file in one.files.values()]
        needed = {*(one.name for one in kept), *(object_name(*file) for file in files)}
        for name in self.sizes().keys() - needed:
            match = _NAME.fullmatch(name)
            if match and int(match[1]) <= kept[-1].attempt:
                self.remove(name)

    def remove(self, name: str) -> None:
        """Remove an object; do nothing if there is none."""
        with suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}")


def location_of(sweep: str, trial: int) -> str:
    """The location of a trial's copies in that of its sweep."""
    return f"{sweep}/trials/{trial}"


def fetch(location: str, target: Path) -> bool:
    """Write the files of a trial's newest copy into a folder; returns whether there is one.

    Raises:
        UsageError: the location does not answer, or the copy is damaged.
    """
    try:
        copies = Copies(location)
        found = copies.found()
        for newest in found[:1]:
            copies.restore(newest, Folder(target))
    except Exception as error:
        raise UsageError(f"{location} cannot be read: {one_line(error)}") from error
    return bool(found)


def forget_checkpoints(location: str) -> None:
    """Remove the checkpoints of a trial; other files that it has written stay."""
    copies = Copies(location)
    for found in copies.found()[:1]:
        files = copies.read(found).files
        rest = {p: file for p, file in files.items() if p.split("/")[0] not in DISPOSABLE}
        manifest = Manifest(found.attempt, found.number + 1, rest)
        copies.write(manifest.name, manifest.to_json())
        copies.tidy(manifest)


def check_writable(location: str) -> None:
    """Write a small object to a location and remove it; raises UsageError if that fails."""
    try:
        copies = Copies(location)
        copies.write(".probe", b"automl")
        copies.remove(".probe")
    except Exception as error:
        raise UsageError(
            f"artifacts: {location} cannot be written from this machine. Check the name and the "
            f"credentials in the environment: {one_line(error)}"
        ) from error


def object_name(attempt: int, file: Mapping[str, Any]) -> str:
    """The name of a file's object below the location of its trial."""
    return f"{attempt:06d}/object-{file['sha256']}"


def _sum(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


class ArtifactsUnreachable(Exception):
    """The location of the artifacts does not answer, so the attempt cannot go on from them."""


def listed(top: Path) -> Listing:
    """The files in a trial's folder that are kept, by their path in it with slashes.

    Drafts, logs and hidden files at the top are not.
    """
    found: Listing = {}
    for path in top.rglob("*"):
        parts = path.relative_to(top).parts
        left_out = parts[0] in NOT_KEPT or parts[0].startswith(".")
        if left_out or any(_DRAFT.fullmatch(part) for part in parts):
            continue
        with suppress(FileNotFoundError):  # the attempt may remove it meanwhile
            facts = path.lstat()
            target = str(path.readlink()) if stat.S_ISLNK(facts.st_mode) else ""
            if target or stat.S_ISREG(facts.st_mode):
                found["/".join(parts)] = (facts.st_size, facts.st_mtime_ns, target)
    return found


class Mirror:
    """Mirrors the folder of one attempt; inside it, the trial's files are on this machine.

    New ones are uploaded by rank 0. Does nothing if the assignment names no location.

    Args:
        context: of the attempt.

    Attributes:
        message: what the outcome says about the files; "" for nothing.
        seconds: how long the attempt has waited for its files, which is no part of its own time.
    """

    def __init__(self, context: Context) -> None:
        self.message, self._error, self.seconds = "", "", 0.0
        self._context, self._assignment = context, context.assignment
        self._location, self._folder = self._assignment.artifacts, self._assignment.files
        self._manifests: list[Manifest] = []  # of this attempt, at most two
        self._stored: Listing = {}  # the files as they are at the location
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        """Bring the files of earlier attempts to this machine, unless they are here.

        Raises:
            ArtifactsUnreachable: the location does not answer.
            OSError, StoreError: the folder cannot be written, or a link leads out of it.
        """
        if not self._location:
            return
        begun, a = time.monotonic(), self._assignment
        self._folder.make()
        with self._folder.file(MARK).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            here = int(file.read() or 0)  # the last attempt whose files are on this machine
            if a.resume and here != a.attempt:  # else rank 0, on this machine, has done it
                try:
                    self._restore_newer(file, here)
                except Exception as error:
                    unreachable = ArtifactsUnreachable(
                        "the files of its earlier attempts cannot be read from "
                        f"{self._location}: {one_line(error)}"
                    )
                    raise (error if isinstance(error, StoreError) else unreachable) from None
            if self._context.rank == 0:
                file.truncate(0)
                file.write(str(a.attempt))
                self._context.checkpointed = self._wake.set
                run = threading.Thread(target=self._run, name="automl-artifacts", daemon=True)
                self._thread = run
                run.start()
        self.seconds += time.monotonic() - begun

    def _restore_newer(self, file: IO[str], here: int) -> None:
        """Restore the newest whole copy, if it is of a later attempt than the files here."""
        copies, damaged = Copies(self._location), ""
        for found in copies.found(self._assignment.attempt):
            if found.attempt <= here:
                break
            file.truncate(0)  # what is here from now on is no whole copy
            here = 0
            self._remove_files()
            try:
                copies.restore(found, self._folder)
            except DamagedCopy as error:
                damaged = damaged or str(error)
                self._remove_files()
            else:
                self._stored, here = listed(self._folder.path), found.attempt
                file.write(str(here))
        if damaged:
            went_on = "an older copy" if self._stored else "nothing: it began anew"
            self.message = f"{damaged}; the attempt went on from {went_on}"

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Upload the last files and wait for that; then those of this machine are removed."""
        if self._thread is None or kind is KeyboardInterrupt:  # then the files stay here
            return
        begun = time.monotonic()
        self._over.set()
        self._wake.set()
        while self._thread.is_alive() and time.monotonic() - begun < 1.2 * FINISH_SECONDS:
            self._thread.join(1.0)
            self._context.stop_requested()  # shows that the attempt is alive
        if self._error or self._thread.is_alive():
            left = (
                f"its newest files are on {socket.gethostname()} only, in {self._folder.path}: "
                f"{self._location} could not be written ({self._error or 'no answer'})"
            )
            self.message = "; ".join(filter(None, (left, self.message)))
        elif self._context.world_size == 1:
            self._remove_files()
        self.seconds += time.monotonic() - begun

    def _run(self) -> None:
        """Upload what is new until the attempt is over, then the last files."""
        before: Listing | None = None
        while not self._over.is_set():
            announced = self._wake.wait(AGAIN * LOOK_SECONDS if self._error else LOOK_SECONDS)
            self._wake.clear()
            now = listed(self._folder.path)
            if now != self._stored and (announced or now == before):
                self._try_to_upload()  # the training goes on without
            before = now
        end = time.monotonic() + FINISH_SECONDS
        while not self._try_to_upload() and time.monotonic() < end:
            time.sleep(1.0)

    def _try_to_upload(self) -> bool:
        """Whether an upload succeeds; an error is written into the trial's log, once."""
        text = ""
        try:
            self._upload()
        except Exception as error:
            text = one_line(error)
        if text not in ("", self._error):
            print(f"artifacts: {self._location} cannot be written now: {text}", file=sys.stderr)
        self._error = text
        return not text

    def _upload(self) -> None:
        """Write a copy of the folder as it is now, then forget the one before the last."""
        top, attempt, copies = self._folder.path, self._assignment.attempt, Copies(self._location)
        now = listed(top)
        if now == self._stored:
            return
        last: Mapping[str, Any] = self._manifests[-1].files if self._manifests else {}
        files = {}
        for path, facts in now.items():
            if path in last and self._stored[path] == facts:
                files[path] = last[path]
            elif facts[2]:
                files[path] = {"sha256": "", "size": 0, "link": facts[2]}
            else:
                files[path] = {"sha256": sha256(top / path), "size": facts[0], "link": ""}
                copies.put(object_name(attempt, files[path]), top / path)
        if not now.items() <= listed(top).items():
            raise OSError(f"{top} was written during the upload")
        number = self._manifests[-1].number + 1 if self._manifests else 0
        manifest = Manifest(attempt, number, files)
        copies.write(manifest.name, manifest.to_json())
        self._manifests = [*self._manifests[-1:], manifest]
        self._stored = now
        copies.tidy(*self._manifests)

    def _remove_files(self) -> None:
        """Remove the files of this machine that are kept at the location."""
        for name in self._folder.names():
            if name in (*NOT_KEPT, MARK):
                continue
            try:
                self._folder.place(name).unlink(missing_ok=True)
            except (IsADirectoryError, PermissionError):
                (self._folder / name).remove()
