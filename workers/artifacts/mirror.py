"""Keeps a trial's folder at a location while the trial runs, and brings it back before it does.

A thread looks for new checkpoints and uploads them beside the training. On the node the folder is
a working copy: at the end of an attempt, once everything is at the location, it is removed.
"""

import fcntl
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from search_spaces.errors import StoreError
from workers.files.folder import Folder

from .listing import NOT_KEPT, ChangedMeanwhile, FileIdentity, Listing, Moment, listed
from .snapshots import (
    DamagedArtifact,
    Manifest,
    Snapshots,
    StoredFile,
    attempt_name,
    manifest_name,
    object_name,
)
from .storage import ArtifactStorage, described, retried

LOOK_SECONDS: Final = 2.0  # between two looks for files that nobody has announced
RESTORE_SECONDS: Final = 300.0  # until an attempt gives up to read its files
FINISH_SECONDS: Final = 300.0  # until an attempt gives up to write them at its end
MARK: Final = ".artifacts.json"  # in the trial's folder: the attempt whose files these are
LOCK: Final = ".artifacts.lock"  # in the trial's folder: held by the rank that restores it


class ArtifactMirror:
    """Mirrors the folder of one attempt.

    Args:
        location: of the trial's snapshots.
        folder: of the trial on this machine.
        attempt: its number.
        resume: whether earlier attempts may have left files.

    Attributes:
        message: what a person must know about the files of the trial; "" for nothing.
        details: facts for the outcome.
        seconds: how long the attempt has waited for its files.
    """

    def __init__(self, location: str, folder: Folder, attempt: int, *, resume: bool) -> None:
        self.location = location
        self._folder = folder
        self._attempt = attempt
        self._resume = resume
        self.message = ""
        self.details: dict[str, Any] = {}
        self.artifact_bytes = 0
        self.seconds = 0.0
        storage = ArtifactStorage(location)
        self._snapshots = Snapshots(storage)
        self._place = storage / attempt_name(attempt)
        self._known: dict[FileIdentity, StoredFile] = {}
        self._num_objects = 0
        self._written: set[str] = set()  # objects of this attempt
        self._manifests: list[Manifest] = []  # of this attempt, at most two
        self._stored: Listing | None = None  # the files as they are at the location
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error = ""
        self._done = False

    def restore(self) -> None:
        """Bring the files of earlier attempts to this machine, unless they are here.

        Raises:
            ConnectionError: the location does not answer.
            OSError, StoreError: the folder cannot be written.
        """
        begun = time.monotonic()
        self._folder.make()
        with self._locked():
            mark = self._mark()
            if mark != self._attempt:  # else rank 0, on this machine, has done it
                here = mark or 0
                self._set_mark(self._restore(here) if self._resume else here)
        self.seconds += time.monotonic() - begun

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
        if self._manifests:
            self.artifact_bytes = sum(
                {f.object: f.size for m in self._manifests for f in m.files.values()}.values()
            )
        if not self._done:
            self._note(
                f"its newest files are on {socket.gethostname()} only, in {self._folder.path}: "
                f"{self.location} could not be written ({self._error or 'no answer'})"
            )
        elif remove:
            self._remove_files()
        self.seconds += time.monotonic() - begun

    # ------------------------------------------------------------------ before the attempt

    def _restore(self, mark: int) -> int:
        """Restore the newest whole snapshot, if it is of a later attempt than the files here.

        Returns:
            The attempt whose files are here now; 0 if there are none.
        """
        damaged: list[str] = []
        found = self._retried(lambda: self._snapshots.found(self._attempt))
        while found and found[0][0] > mark:
            newest = found[0]
            try:
                damaged += self._retried(partial(self._restored, *newest))
            except DamagedArtifact as error:
                again = self._retried(lambda: self._snapshots.found(self._attempt))
                if again and again[0] > newest:
                    found = again  # an attempt that was given up had replaced it meanwhile
                    continue
                damaged.append(str(error))
                found = found[1:]
            else:
                self._stored = listed(self._folder)
                mark = newest[0]
                break
        else:
            if damaged:
                self._remove_files()
                mark = 0
        for text in damaged:
            print(f"artifacts: {text}", file=sys.stderr)
        if damaged:
            self.details["damaged_artifacts"] = damaged
            went_on = "an older snapshot" if self._stored else "nothing: it began anew"
            self._note(f"{damaged[0]}; the attempt went on from {went_on}")
        return mark

    def _restored(self, attempt: int, sequence: int) -> list[str]:
        manifest = self._snapshots.read(attempt, sequence)
        self._remove_files()
        return self._snapshots.restore(manifest, self._folder)

    def _retried(self, call: Callable[[], Any]) -> Any:
        try:
            return retried(call, RESTORE_SECONDS)
        except (StoreError, ChangedMeanwhile):
            raise
        except Exception as error:
            raise ConnectionError(
                f"the files of its earlier attempts cannot be read from {self.location}: "
                f"{described(error)}"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._folder.open(LOCK, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _mark(self) -> int | None:
        """The last attempt whose files are on this machine; None if it is unknown."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(self._folder.read(MARK))["attempt"])
        return None

    def _set_mark(self, attempt: int) -> None:
        self._folder.replace(MARK, json.dumps({"attempt": attempt}).encode())

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        before: Listing | None = None
        delay = LOOK_SECONDS
        while not self._over.is_set():
            announced = self._wake.wait(delay)
            self._wake.clear()
            if self._over.is_set():
                break
            try:
                now = listed(self._folder)
                if now != (self._stored or {}) and (announced or now == before):
                    self._upload()
                before, delay = now, LOOK_SECONDS
            except ChangedMeanwhile:
                before = None
            except Exception as error:  # the training goes on without
                self._say(error)
                delay = min(2 * delay, 60.0)
        self._last_upload()

    def _last_upload(self) -> None:
        def upload() -> None:
            if listed(self._folder) != (self._stored or {}):
                self._upload()

        try:
            retried(upload, FINISH_SECONDS)
            self._done = True
        except Exception as error:
            self._say(error)

    def _upload(self) -> None:
        """Write a snapshot of the folder as it is now, then forget the snapshot before the last."""
        sequence = self._manifests[-1].sequence + 1 if self._manifests else 0
        files: dict[str, StoredFile] = {}
        with Moment(self._folder, self._known.keys()) as moment:
            for path, identity in moment.listing.items():
                if identity.link:
                    files[path] = StoredFile(link=identity.link)
                    continue
                if identity not in self._known:
                    self._num_objects += 1
                    name = object_name(self._num_objects)
                    self._written.add(name)
                    found = self._place.write(name, moment.file(path), identity.size)
                    moment.close(path)
                    self._known[identity] = StoredFile(name, found, identity.size)
                files[path] = self._known[identity]
        manifest = Manifest(self._attempt, sequence, socket.gethostname(), files)
        self._snapshots.write_manifest(manifest)
        first = not self._manifests
        old, self._manifests = self._manifests[:-1], [*self._manifests[-1:], manifest]
        self._stored, self._error = moment.listing, ""
        self._forget(old, first=first)

    def _forget(self, old: list[Manifest], *, first: bool) -> None:
        """Remove what no snapshot needs any more; what cannot be removed now stays for later."""
        needed = set().union(*(manifest.objects for manifest in self._manifests))
        self._known = {k: file for k, file in self._known.items() if file.object in needed}
        try:
            for manifest in old:
                self._place.remove(manifest_name(manifest.sequence))
            for name in sorted(self._written - needed):
                self._place.remove(name)
                self._written.discard(name)
            if first:
                self._snapshots.remove_before(self._attempt)
        except Exception as error:
            self._say(error)

    def _say(self, error: Exception) -> None:
        """Write an error into the trial's log, once."""
        text = described(error)
        if isinstance(error, ChangedMeanwhile):
            text = f"{error} is written all the time"
        if text != self._error:
            print(f"artifacts: {self.location} cannot be written now: {text}", file=sys.stderr)
        self._error = text

    def _note(self, text: str) -> None:
        self.message = f"{self.message}; {text}" if self.message else text

    def _remove_files(self) -> None:
        """Remove the files of this machine that are kept at the location, and the mark."""
        with suppress(FileNotFoundError):
            self._folder.unlink(MARK)
            for name in self._folder.names():
                if name in (*NOT_KEPT, LOCK):
                    continue
                try:
                    self._folder.unlink(name)
                except (IsADirectoryError, PermissionError):
                    (self._folder / name).remove()
