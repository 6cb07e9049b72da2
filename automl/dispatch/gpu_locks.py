"""One lock for each GPU of this machine, so that sweeps in several shells share them.

A lock is a file in a folder of the user. A sweep holds it until it ends: the kernel frees it even
if the process is killed. The file says which sweep that is.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from automl.errors import StoreError

VARIABLE: Final = "AUTOML_RUNTIME_DIR"


@dataclass(frozen=True)
class Holder:
    """A sweep, its process, and the UUIDs of the GPUs that it holds."""

    sweep: str
    pid: int
    gpus: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"sweep {self.sweep!r}, process {self.pid}"


class GpuLocks:
    """The GPUs that one sweep holds.

    Args:
        sweep: its name.
        folder: of the locks; None for the user's own.
        enabled: whether trials run on this machine; if not, no GPU is locked.

    Attributes:
        enabled: as given.
        waits_for: for whom the sweep waits, as text; "" if it does not.
        trouble: why GPUs cannot be locked, so that all pass for free; "" if they can.
    """

    def __init__(self, sweep: str, folder: Path | None = None, *, enabled: bool = True) -> None:
        self._folder = folder or runtime_folder()
        self._content = json.dumps([sweep, os.getpid()]).encode()
        self._files: dict[str, int] = {}
        self.enabled = enabled
        self.waits_for = ""
        self.trouble = ""

    def take(
        self, most: int, visible: Sequence[str], occupied: Mapping[str, str], *, least: int = 1
    ) -> list[str]:
        """Lock GPUs until `close`.

        Args:
            most: at most this many.
            visible: UUIDs of those that this process may use, in order.
            occupied: those that other programs use, and how; they are passed over.
            least: take none if fewer are free, so that no two sweeps wait for each other. If GPUs
                cannot be locked, take those that are occupied rather than none.

        Returns:
            Their UUIDs. If there are none, `waits_for` says who has them.
        """
        unused = [gpu for gpu in visible if gpu not in occupied]
        try:
            _make(self._folder)
            for gpu in unused:
                if len(self._files) < most:
                    self._lock(gpu)
        except (OSError, StoreError) as error:
            self.trouble = str(error)
            self.close()
            return (unused if len(unused) >= least else list(visible))[:most]
        found, missing = list(self._files), least - len(self._files)
        self.waits_for = ""
        if missing <= 0:
            return found
        self.close()
        others = [one for one in holders(self._folder) if set(one.gpus) & set(visible)]
        users = [use for gpu, use in occupied.items() if all(gpu not in one.gpus for one in others)]
        held = ", and ".join(map(str, [*others, *users][:3])) or "another sweep"
        self.waits_for = f"waits for {missing} GPU{'s' if missing > 1 else ''} held by {held}"
        return []

    def close(self) -> None:
        """Free all GPUs."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _lock(self, gpu: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._folder / f"{gpu.replace('/', '_')}.gpu", flags, 0o600)
        if not _try_lock(file):
            os.close(file)
            return
        self._files[gpu] = file
        os.ftruncate(file, 0)
        os.pwrite(file, self._content, 0)


def holders(folder: Path | None = None) -> list[Holder]:
    """Who holds which GPUs now; makes no folder."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in sorted((folder or runtime_folder()).glob("*.gpu")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if not _try_lock(file):
                    sweep, pid = json.loads(os.pread(file, 1 << 12, 0))
                    found.setdefault((str(sweep), int(pid)), []).append(path.stem)
            finally:
                os.close(file)
    return [Holder(sweep, pid, tuple(gpus)) for (sweep, pid), gpus in found.items()]


def runtime_folder() -> Path:
    """The folder of this user's locks."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if folder and os.access(folder, os.W_OK):
            return Path(folder) / "automl"
    return Path(tempfile.gettempdir()) / f"automl-{os.getuid()}"


def _make(folder: Path) -> None:
    """Make the folder; raises StoreError if other users could write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}") from error
    if not folder.is_dir() or folder.is_symlink() or status.st_uid != os.getuid():
        raise StoreError(f"{folder} is not a folder of yours; set {VARIABLE} to another")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
