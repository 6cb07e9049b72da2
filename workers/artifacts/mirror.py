"""Keeps a trial's folder at a location while the trial runs, and brings it back before it does.

A thread looks for new checkpoints and uploads them beside the training. On the node the folder is
a working copy: at the end of an attempt, once everything is at the location, it is removed.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from search_spaces.errors import StoreError
from workers.failures import one_line
from workers.files.folder import Folder, link, sha256

from .copies import NOT_KEPT, CopiedFile, Copies, DamagedCopy, Manifest, object_name, retried

if TYPE_CHECKING:
    from workers.context import Context

LOOK_SECONDS: Final = 2.0  # between two looks for files that nobody has announced
AGAIN: Final = 15  # times as long after an upload that has failed
RESTORE_SECONDS: Final = 300.0  # until an attempt gives up to read its files
FINISH_SECONDS: Final = 300.0  # until an attempt gives up to write them at its end
MARK: Final = ".artifacts.mark"  # in the trial's folder: the attempt whose files these are
LOCK: Final = ".artifacts.lock"  # in the trial's folder: held by the rank that restores it
LINKS: Final = ".artifacts.links"  # in the trial's folder: its files at one moment
_DRAFT: Final = re.compile(r"\.[0-9]+(\.[0-9]+)?")  # a checkpoint that is being written


class ArtifactsUnreachable(Exception):
    """The location of the artifacts does not answer, so the attempt cannot go on from them."""


class FileIdentity(NamedTuple):
    """A file as it was: if this is the same, so is its content; `link` is the target of a link."""

    size: int
    changed: int
    link: str = ""


@dataclass
class ArtifactNotes:
    """What an attempt's outcome says about the trial's files.

    Args:
        message: for a person; "" for nothing.
        seconds: how long the attempt has waited for its files.
        artifact_bytes: of them, at the location.
    """

    message: str = ""
    seconds: float = 0.0
    artifact_bytes: int = 0

    def add_to(self, message: str) -> str:
        """The message of an outcome with this one."""
        return "; ".join(filter(None, (message, self.message)))


@contextmanager
def mirrored(context: Context, notes: ArtifactNotes) -> Iterator[None]:
    """While inside, the trial's files are here, and new ones are uploaded by rank 0.

    Does nothing if the assignment names no location.

    Raises:
        ArtifactsUnreachable: the location does not answer, so the attempt cannot go on from it.
    """
    a = context.assignment
    if not a.artifacts:
        yield
        return
    mirror = Mirror(a.artifacts, a.files, a.attempt, resume=a.resume, notes=notes)
    mirror.restore()
    if context.rank == 0:
        mirror.start()
        context.checkpointed = mirror.checkpointed
    try:
        yield
    finally:
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):  # else the files stay here
            mirror.finish(context.stop_requested, remove=context.world_size == 1)


def listed(top: Path) -> dict[str, FileIdentity]:
    """The files in a trial's folder that are kept, by their path in it with slashes."""
    found: dict[str, FileIdentity] = {}
    for path in top.rglob("*"):
        parts = path.relative_to(top).parts
        if _left_out(parts[0], top=True) or any(map(_left_out, parts)):
            continue
        with suppress(FileNotFoundError):  # the attempt may remove it meanwhile
            facts = path.lstat()
            target = str(path.readlink()) if stat.S_ISLNK(facts.st_mode) else ""
            if target or stat.S_ISREG(facts.st_mode):
                found["/".join(parts)] = FileIdentity(facts.st_size, facts.st_mtime_ns, target)
    return found


def _left_out(name: str, *, top: bool = False) -> bool:
    """Whether a name is not kept: a draft anywhere, at the top also logs and hidden files."""
    return bool(_DRAFT.fullmatch(name)) or (top and (name in NOT_KEPT or name.startswith(".")))


class Mirror:
    """Mirrors the folder of one attempt.

    Args:
        location: of the trial's copies.
        folder: of the trial on this machine.
        attempt: its number.
        resume: whether earlier attempts may have left files.
        notes: receives what the outcome says.
    """

    def __init__(
        self, location: str, folder: Folder, attempt: int, *, resume: bool, notes: ArtifactNotes
    ) -> None:
        self._location = location
        self._folder = folder
        self._attempt = attempt
        self._resume = resume
        self.notes = notes
        self._files: dict[str, CopiedFile] = {}  # of the newest copy of this attempt
        self._manifests: list[Manifest] = []  # of this attempt, at most two
        self._stored: Mapping[str, FileIdentity] = {}  # the files as they are at the location
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error = ""
        self._done = False

    def restore(self) -> None:
        """Bring the files of earlier attempts to this machine, unless they are here.

        Raises:
            ArtifactsUnreachable: the location does not answer.
            OSError, StoreError: the folder cannot be written, or a link leads out of it.
        """
        begun = time.monotonic()
        self._folder.make()
        self._copies: Copies = self._asked(lambda: Copies(self._location))
        with self._locked():
            mark = self._mark()
            if mark != self._attempt:  # else rank 0, on this machine, has done it
                self._set_mark(self._newest(mark) if self._resume else mark)
        self.notes.seconds += time.monotonic() - begun

    def start(self) -> None:
        """Upload new files from now on, in a thread; for the rank that writes the files."""
        with self._locked():
            self._set_mark(self._attempt)
        self._thread = threading.Thread(target=self._run, name="automl-artifacts", daemon=True)
        self._thread.start()

    def checkpointed(self) -> None:
        """A checkpoint is complete: upload it soon."""
        self._wake.set()

    def finish(self, beat: Callable[[], object], *, remove: bool) -> None:
        """Upload the last files, and wait for that.

        Args:
            beat: called each second, to show that the attempt is alive.
            remove: remove the files of this machine afterwards.
        """
        if self._thread is None:
            return
        begun = time.monotonic()
        self._over.set()
        self._wake.set()
        while self._thread.is_alive() and time.monotonic() - begun < 1.2 * FINISH_SECONDS:
            self._thread.join(1.0)
            beat()
        objects = {name: size for one in self._manifests for name, size in one.objects.items()}
        self.notes.artifact_bytes = sum(objects.values())
        if not self._done:
            self._note(
                f"its newest files are on {socket.gethostname()} only, in {self._folder.path}: "
                f"{self._location} could not be written ({self._error or 'no answer'})"
            )
        elif remove:
            self._remove_files()
        self.notes.seconds += time.monotonic() - begun

    def _newest(self, mark: int) -> int:
        """Restore the newest whole copy, if it is of a later attempt than the files here.

        Returns:
            The attempt whose files are here now; 0 if there are none.
        """
        damaged = ""
        for found in self._asked(lambda: self._copies.found(self._attempt)):
            if found.attempt <= mark:
                break
            try:
                self._asked(partial(self._restored, found))
            except DamagedCopy as error:
                damaged = damaged or str(error)
                print(f"artifacts: {error}", file=sys.stderr)
                self._remove_files()
                mark = 0
            else:
                self._stored, mark = listed(self._folder.path), found.attempt
        if damaged:
            went_on = "an older copy" if self._stored else "nothing: it began anew"
            self._note(f"{damaged}; the attempt went on from {went_on}")
        return mark

    def _restored(self, found: Manifest) -> None:
        self._remove_files()
        self._copies.restore(found, self._folder)

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return retried(call, RESTORE_SECONDS)
        except StoreError:
            raise
        except Exception as error:
            raise ArtifactsUnreachable(
                "the files of its earlier attempts cannot be read from "
                f"{self._location}: {one_line(error)}"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._folder.open(LOCK, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _mark(self) -> int:
        """The last attempt whose files are on this machine; 0 if it is unknown."""
        with suppress(OSError, ValueError):
            return int(self._folder.read(MARK))
        return 0

    def _set_mark(self, attempt: int) -> None:
        self._folder.replace(MARK, str(attempt).encode())

    def _run(self) -> None:
        """Upload what is new until the attempt is over, then the last files."""
        before: Mapping[str, FileIdentity] | None = None
        while not self._over.is_set():
            announced = self._wake.wait(AGAIN * LOOK_SECONDS if self._error else LOOK_SECONDS)
            self._wake.clear()
            if self._over.is_set():
                break
            now = listed(self._folder.path)
            if now != self._stored and (announced or now == before):
                with self._errors_told():  # the training goes on without
                    self._upload()
            before = now
        with self._errors_told():
            retried(self._upload, FINISH_SECONDS)
            self._done = True

    def _upload(self) -> None:
        """Write a copy of the folder as it is now, then forget the one before the last.

        Hard links keep the files of one moment readable while the program replaces them.
        """
        links = self._folder / LINKS
        links.remove()
        try:
            top = self._folder.path
            shutil.copytree(
                top,
                links.path,
                symlinks=True,
                copy_function=link,
                ignore=lambda at, names: [n for n in names if _left_out(n, top=at == str(top))],
            )
            now = listed(links.path)
            if now == self._stored:
                return
            files = {path: self._copied(links.path / path, now[path], path) for path in now}
            if listed(links.path) != now:
                raise OSError(f"{top} is written all the time")
        finally:
            links.remove()
        number = self._manifests[-1].number + 1 if self._manifests else 0
        manifest = Manifest(self._attempt, number, files)
        self._copies.write(manifest.name, manifest.to_json())
        self._manifests = [*self._manifests[-1:], manifest]
        self._stored, self._files, self._error = now, files, ""
        with self._errors_told():  # what cannot be removed now stays for later
            self._copies.tidy(*self._manifests)

    def _copied(self, path: Path, identity: FileIdentity, name: str) -> CopiedFile:
        """The entry of a file, which is uploaded unless the last copy of this attempt has it."""
        if identity.link:
            return CopiedFile(link=identity.link)
        if name in self._files and self._stored[name] == identity:
            return self._files[name]
        file = CopiedFile(sha256(path), identity.size)
        self._copies.put(object_name(self._attempt, file), path)
        return file

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        """Write an error into the trial's log, once."""
        try:
            yield
        except Exception as error:
            text = one_line(error)
            if text != self._error:
                print(f"artifacts: {self._location} cannot be written now: {text}", file=sys.stderr)
            self._error = text

    def _note(self, text: str) -> None:
        self.notes.message = "; ".join(filter(None, (self.notes.message, text)))

    def _remove_files(self) -> None:
        """Remove the files of this machine that are kept at the location, and the mark."""
        for name in self._folder.names():
            if name in (*NOT_KEPT, LOCK):
                continue
            try:
                self._folder.unlink(name)
            except (IsADirectoryError, PermissionError):
                (self._folder / name).remove()
