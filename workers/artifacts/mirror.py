"""Keeps a trial's folder at a location while the trial runs, and brings it back before it does.

A thread looks for new checkpoints and uploads them beside the training. On the node the folder is
a working copy: at the end of an attempt, once everything is at the location, it is removed.
"""

from __future__ import annotations

import fcntl
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from search_spaces.errors import StoreError
from workers.failures import one_line
from workers.files.folder import Folder, sha256

from .copies import NOT_KEPT, CopiedFile, Copies, DamagedCopy, Manifest, object_name

if TYPE_CHECKING:
    from workers.context import Context

LOOK_SECONDS: Final = 2.0  # between two looks for files that nobody has announced
AGAIN: Final = 15  # times as long after an upload that has failed
FINISH_SECONDS: Final = 300.0  # until an attempt gives up to write its files at its end
# In the trial's folder: the attempt whose files these are; locked by the rank that restores them.
MARK: Final = ".artifacts.mark"
_DRAFT: Final = re.compile(r"\.[0-9]+(\.[0-9]+)?")  # a checkpoint that is being written
# A file as it was: size, time of its last change, target if it is a link. If these are the same,
# so is its content.
Listing = dict[str, tuple[int, int, str]]


class ArtifactsUnreachable(Exception):
    """The location of the artifacts does not answer, so the attempt cannot go on from them."""


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
        self._manifests: list[Manifest] = []  # of this attempt, at most two
        self._stored: Listing = {}  # the files as they are at the location
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error = ""

    def restore(self) -> None:
        """Bring the files of earlier attempts to this machine, unless they are here.

        Raises:
            ArtifactsUnreachable: the location does not answer.
            OSError, StoreError: the folder cannot be written, or a link leads out of it.
        """
        begun = time.monotonic()
        self._folder.make()
        with self._marked() as (file, here):
            if self._resume and here != self._attempt:  # else rank 0, on this machine, has done it
                try:
                    self._restore_newer(file, here)
                except StoreError:
                    raise
                except Exception as error:
                    raise ArtifactsUnreachable(
                        "the files of its earlier attempts cannot be read from "
                        f"{self._location}: {one_line(error)}"
                    ) from error
        self.notes.seconds += time.monotonic() - begun

    def _restore_newer(self, file: IO[str], here: int) -> None:
        """Restore the newest whole copy, if it is of a later attempt than the files here."""
        copies, damaged = Copies(self._location), ""
        for found in copies.found(self._attempt):
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
            self.notes.message = f"{damaged}; the attempt went on from {went_on}"

    def start(self) -> None:
        """Upload new files from now on, in a thread; for the rank that writes the files."""
        with self._marked() as (file, _):
            file.truncate(0)
            file.write(str(self._attempt))
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
        if self._error or self._thread.is_alive():
            left = (
                f"its newest files are on {socket.gethostname()} only, in {self._folder.path}: "
                f"{self._location} could not be written ({self._error or 'no answer'})"
            )
            self.notes.message = self.notes.add_to(left)
        elif remove:
            self._remove_files()
        self.notes.seconds += time.monotonic() - begun

    @contextmanager
    def _marked(self) -> Iterator[tuple[IO[str], int]]:
        """The file of the mark, locked, and the last attempt whose files are on this machine."""
        with self._folder.open(MARK, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file, int(file.read() or 0)

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
        try:
            self._upload()
        except Exception as error:
            text = one_line(error)
            if text != self._error:
                print(f"artifacts: {self._location} cannot be written now: {text}", file=sys.stderr)
            self._error = text
            return False
        self._error = ""
        return True

    def _upload(self) -> None:
        """Write a copy of the folder as it is now, then forget the one before the last."""
        top = self._folder.path
        now = listed(top)
        if now == self._stored:
            return
        copies = Copies(self._location)
        last: Mapping[str, Any] = self._manifests[-1].files if self._manifests else {}
        files = {}
        for path, facts in now.items():
            if path in last and self._stored[path] == facts:
                files[path] = last[path]
            elif facts[2]:
                files[path] = CopiedFile(link=facts[2])
            else:
                files[path] = CopiedFile(sha256(top / path), facts[0])
                copies.put(object_name(self._attempt, files[path]), top / path)
        if not now.items() <= listed(top).items():
            raise OSError(f"{top} was written during the upload")
        number = self._manifests[-1].number + 1 if self._manifests else 0
        manifest = Manifest(self._attempt, number, files)
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
                self._folder.unlink(name)
            except (IsADirectoryError, PermissionError):
                (self._folder / name).remove()
