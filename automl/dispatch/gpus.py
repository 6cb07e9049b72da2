"""The GPUs of this machine: which this process may use, who uses them, and a lock for each.

`nvidia-smi` knows the first two. A machine without it has no GPUs to share. A lock is a file in a
folder of the user. A sweep holds it until it ends: the kernel frees it even if the process is
killed. The file says which sweep that is.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from automl.errors import StoreError, UsageError
from workers.runtime.devices import named_gpus, query

VARIABLE: Final = "AUTOML_RUNTIME_DIR"


@dataclass(frozen=True)
class SharedGpu:
    """A GPU that this process may use.

    Args:
        uuid: its name, such as "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
        users: the processes of others that use it, each as text.
    """

    uuid: str
    users: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.uuid} by {', '.join(self.users[:3])}"


def shared_gpus() -> list[SharedGpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows, in its order; none without nvidia-smi.

    For the names see `named_gpus`. As in CUDA, a name of no GPU hides those after it. A part of a
    GPU ("MIG-...") is taken as it is.
    """
    rows = query("--query-gpu=index,uuid,memory.total")
    indices = {row[0]: row[1] for row in rows if len(row) == 3}
    if not indices:
        return []
    chosen = _chosen(indices)
    users = gpu_users() if chosen else {}
    return [SharedGpu(uuid, tuple(users.get(uuid, ()))) for uuid in chosen]


def _chosen(indices: dict[str, str]) -> list[str]:
    named = named_gpus()
    if named is None:
        return list(indices.values())
    found: list[str] = []
    for name in named:
        uuid = indices.get(name, name if name.startswith("MIG-") else "")
        if name.startswith("GPU-"):
            uuid = next((one for one in indices.values() if one.startswith(name)), "")
        if not uuid:
            break
        if uuid not in found:
            found.append(uuid)
    return found


def gpu_users() -> dict[str, list[str]]:
    """The processes of others by the UUID of the GPU that they use."""
    this = psutil.Process()
    own = {this.pid, *(child.pid for child in this.children(recursive=True))}
    found: dict[str, list[str]] = {}
    for row in query("--query-compute-apps=gpu_uuid,pid,used_memory"):
        if len(row) == 3 and row[1].isdigit() and int(row[1]) not in own:
            used = f" with {row[2]} MiB" if row[2].isdigit() else ""
            found.setdefault(row[0], []).append(f"{_process(int(row[1]))}{used}")
    return found


def _process(pid: int) -> str:
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"


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
    """

    def __init__(self, sweep: str, folder: Path | None = None) -> None:
        self._folder = folder or runtime_folder()
        self._content = json.dumps([sweep, os.getpid()]).encode()
        self._files: dict[str, int] = {}

    def take(self, most: int, gpus: Sequence[SharedGpu], *, least: int = 1) -> list[str]:
        """Lock GPUs until `close`.

        Args:
            most: at most this many.
            gpus: those that this process may use, in order; others' programs use some already.
            least: take none if fewer are free.

        Returns:
            Their UUIDs.

        Raises:
            UsageError: too few are free; the message says who has the others.
            StoreError: the folder of the locks cannot be used.
        """
        _make(self._folder)
        for gpu in gpus:
            if not gpu.users and len(self._files) < most:
                self._lock(gpu.uuid)
        if len(self._files) >= least:
            return list(self._files)
        self.close()
        visible = {gpu.uuid for gpu in gpus}
        others = [one for one in holders(self._folder) if visible & set(one.gpus)]
        held = {gpu for one in others for gpu in one.gpus}
        users = [gpu for gpu in gpus if gpu.users and gpu.uuid not in held]
        who = ", and ".join(map(str, [*others, *users][:3])) or "another sweep"
        raise UsageError(
            f"the sweep needs {least} GPU{'s' if least > 1 else ''} of its own, and too few are "
            f"free: they are held by {who}. Wait for it, or ask for fewer workers"
        )

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
    return Path(given or f"{tempfile.gettempdir()}/automl-{os.getuid()}")


def _make(folder: Path) -> None:
    """Make the folder; raises StoreError if other users could write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.lstat().st_uid
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; set {VARIABLE} to another") from error
    if folder.is_symlink() or owner != os.getuid():
        raise StoreError(f"{folder} is not a folder of yours; set {VARIABLE} to another")


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
