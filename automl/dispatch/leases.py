"""Leases of this machine's cores and GPUs, so that sweeps in several shells share it.

Each sweep has a file in a folder of the user. It says what the sweep holds, and is locked as long
as the sweep's process lives: the kernel frees the lock even if the process is killed. A further
lock lets one sweep at a time read and change these files.

Cores are leased when an attempt begins and given back when it ends. A free core goes to whoever
asks first, except that a sweep gives way to one that waits and holds fewer cores. So each of n busy
sweeps gets its n-th part, and nobody starves. A sweep may always run one trial. Slots that the user
asked for beyond the machine's cores need no lease.

GPUs are leased by one sweep until it ends; those that other programs use are passed over.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from automl.errors import StoreError
from search_spaces.hardware import count_cpus

T = TypeVar("T")

VARIABLE: Final = "AUTOML_RUNTIME_DIR"
LOCK_SECONDS: Final = 5.0  # for the lock of the folder; then the machine is not shared
CLAIM_SECONDS: Final = 2.0  # a waiting sweep that has not asked again for so long is passed over


@dataclass(frozen=True)
class Holder:
    """What a sweep holds, as its file says.

    Args:
        sweep, pid: who it is.
        since: when it began, in seconds since 1970.
        affinity: the cores on which its process may run.
        cores: how many it holds.
        gpus: the UUIDs of those that it holds.
        waits: how many more cores it waits for; asked: when it asked last, on the monotonic clock,
            which all processes share.
        waits_gpus: how many more GPUs it waits for.
    """

    sweep: str
    pid: int
    since: float
    affinity: tuple[int, ...] = ()
    cores: int = 0
    gpus: tuple[str, ...] = ()
    waits: int = 0
    asked: float = 0.0
    waits_gpus: int = 0

    def __str__(self) -> str:
        return f"sweep {self.sweep!r}, process {self.pid}"


@dataclass
class LeaseFolder:
    """The folder with the files of all sweeps of this user on this machine.

    Args:
        path: by default the user's own (`runtime_folder`).

    Raises:
        StoreError: other users could write to the folder, or it cannot be made.
    """

    path: Path = field(default_factory=lambda: runtime_folder())

    def __post_init__(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.lstat()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be made: {error.strerror}") from error
        if not self.path.is_dir() or self.path.is_symlink() or status.st_uid != os.getuid():
            raise StoreError(f"{self.path} is not a folder of yours; set {VARIABLE} to another")
        if status.st_mode & 0o077:
            self.path.chmod(0o700)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other process reads or changes the files; raises StoreError after 5 s."""
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            limit = time.monotonic() + LOCK_SECONDS
            while not _try_lock(file):
                if time.monotonic() > limit:
                    raise StoreError(f"{self.path / 'lock'} is held by a process that hangs")
                time.sleep(0.001)
            yield
        finally:
            os.close(file)

    def holders(self, but: Path | None = None) -> list[Holder]:
        """The sweeps that live, except the one of the file `but`; removes files of dead ones."""
        found = []
        for path in sorted(self.path.glob("*.json")):
            if path == but:
                continue
            with contextlib.suppress(OSError, ValueError, TypeError):
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    if _try_lock(file):
                        path.unlink()
                    else:
                        found.append(_read(file))
                finally:
                    os.close(file)
        return found


class MachineLeases:
    """The leases of one sweep. Used from the controller's thread.

    Args:
        sweep: its name.
        cpus: cores of a slot.
        num_slots: of the sweep.
        folder: None for the user's own. If it cannot be used, everything is granted.
        num_cores: of this machine; None to count them.
        enabled: whether trials run on this machine; if not, everything is granted.

    Attributes:
        enabled: as given.
        waits_for: for whom the sweep waits, as text; "" if it does not.
        crowded: whether the slots that `room` or `take` was last asked for are not all free.
        trouble: why the machine is not shared; "" if it is.
    """

    def __init__(
        self,
        sweep: str,
        cpus: int = 1,
        num_slots: int = 1,
        *,
        folder: LeaseFolder | None = None,
        num_cores: int | None = None,
        enabled: bool = True,
    ) -> None:
        self._cpus = max(1, cpus)
        self._num_cores = num_cores or count_cpus()
        self._surplus = max(0, num_slots * self._cpus - self._num_cores)
        self._running: dict[int, int] = {}  # cores of each running trial
        self._file = -1
        self._path = Path()
        affinity = getattr(os, "sched_getaffinity", lambda _: ())(0)
        self._own = Holder(sweep, os.getpid(), time.time(), tuple(sorted(affinity)))
        self.enabled = enabled
        self.waits_for = ""
        self.crowded = False
        self.trouble = ""
        if not enabled:
            return
        try:
            self._folder = folder or LeaseFolder()
            with self._folder.locked():
                self._create_file()
        except (OSError, StoreError) as error:
            self.trouble = str(error)

    def room(self, slots: int, *, claim: bool = True) -> int:
        """How many of these free slots may begin a trial now.

        All, if the sweep runs no trial yet: it may begin one, however many slots that takes. If
        `crowded` is set then, there is no room for a second one.

        If fewer than asked for, the sweep waits, and richer sweeps give way to it.

        Args:
            claim: whether it waits; False if there may be no trial for the slots.
        """
        return self._alone(lambda: self._decide(slots, claim=claim), slots)

    def take(self, trial: int, slots: int) -> bool:
        """Lease the cores of a trial that begins; False if they are not free."""
        return self._alone(lambda: self._take(trial, slots), True)

    def give_back(self, trial: int) -> None:
        """A trial has ended; nothing happens if it holds no lease."""
        if self._running.pop(trial, None) is not None:
            self._alone(lambda: self._write(cores=self._leased()), None)

    def take_gpus(
        self, most: int, visible: Sequence[str], occupied: Mapping[str, str], *, least: int = 1
    ) -> list[str]:
        """Lease GPUs until `close`.

        Args:
            most: at most this many.
            visible: UUIDs of those that this process may use, in order.
            occupied: those that other programs use, and how; they are passed over.
            least: take none if fewer are free, so that no two sweeps wait for each other. If the
                machine is not shared, take those that are occupied rather than none.

        Returns:
            Their UUIDs. If there are none, `waits_for` says who has them.
        """
        unused = [gpu for gpu in visible if gpu not in occupied]
        unshared = unused if len(unused) >= least else list(visible)
        return self._alone(lambda: self._take_gpus(most, visible, occupied, least), unshared[:most])

    def close(self) -> None:
        """Give everything back."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._file)
            self._file = -1
        self._running.clear()

    def _take(self, trial: int, slots: int) -> bool:
        if self._decide(slots, claim=True) < slots:
            return False
        self._running[trial] = slots * self._cpus
        self._write(cores=self._leased(), waits=0)
        return True

    def _take_gpus(
        self, most: int, visible: Sequence[str], occupied: Mapping[str, str], least: int
    ) -> list[str]:
        others = [
            other for other in self._folder.holders(self._path) if set(other.gpus) & set(visible)
        ]
        held = {gpu for other in others for gpu in other.gpus}
        free = [gpu for gpu in visible if gpu not in held and gpu not in occupied]
        chosen = free[:most] if len(free) >= least else []
        missing = 0 if chosen else least - len(free)
        self._write(gpus=tuple(chosen), waits_gpus=missing)
        users = [use for gpu, use in occupied.items() if gpu not in held]
        self.waits_for = _waits_text(missing, "GPU", [*others, *users])
        return chosen

    def _decide(self, slots: int, *, claim: bool) -> int:
        others = [
            other
            for other in self._folder.holders(self._path)
            if not self._own.affinity or set(self._own.affinity) & set(other.affinity)
        ]
        needed = self._leased(slots * self._cpus) - self._leased()
        taken = sum(other.cores for other in others)
        free = max(0, self._num_cores - self._leased() - taken)
        if self._poorer_waits(others):
            free = 0
        missing = max(0, needed - free)
        self.crowded = missing > 0
        if not self._running or missing == 0:
            self.waits_for = ""
            self._write(waits=0)
            return slots
        self._write(waits=missing if claim else 0, asked=time.monotonic())
        blockers = [other for other in others if other.cores]
        self.waits_for = _waits_text(missing, "core", blockers) if claim else ""
        return (slots * self._cpus - missing) // self._cpus

    def _poorer_waits(self, others: Sequence[Holder]) -> bool:
        """Whether a sweep that holds fewer cores waits for some."""
        now = time.monotonic()
        return any(
            other.waits and other.cores < self._leased() and now - other.asked < CLAIM_SECONDS
            for other in others
        )

    def _leased(self, more: int = 0) -> int:
        """The cores that the running trials need a lease for, with this many more."""
        return max(0, sum(self._running.values()) + more - self._surplus)

    def _create_file(self) -> None:
        self._path = self._folder.path / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write()

    def _write(self, **changes: object) -> None:
        """Change what the own file says; the folder is locked."""
        changed = replace(self._own, **changes)  # type: ignore[arg-type]
        if changed == self._own and changes:
            return
        self._own = changed
        data = json.dumps(asdict(changed)).encode()
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    def _alone(self, change: Callable[[], T], otherwise: T) -> T:
        """Do it while no other process does; `otherwise` if the machine is not shared."""
        if self.trouble or self._file < 0:
            return otherwise
        try:
            with self._folder.locked():
                return change()
        except (OSError, StoreError) as error:
            self.trouble = str(error)
            self.waits_for = ""
            self.crowded = False
            return otherwise


def runtime_folder() -> Path:
    """The folder of this user's leases."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    for folder in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if folder and os.access(folder, os.W_OK):
            return Path(folder) / "automl"
    return Path(tempfile.gettempdir()) / f"automl-{os.getuid()}"


def current_holders() -> list[Holder]:
    """Who holds what now; makes no folder."""
    if not runtime_folder().is_dir():
        return []
    try:
        folder = LeaseFolder()
        with folder.locked():
            return folder.holders()
    except (OSError, StoreError):
        return []


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: int) -> Holder:
    data = json.loads(os.pread(file, 1 << 16, 0))
    return Holder(**{**data, "gpus": tuple(data["gpus"]), "affinity": tuple(data["affinity"])})


def _waits_text(count: int, noun: str, blockers: Sequence[Holder | str]) -> str:
    if count <= 0:
        return ""
    held = ", and ".join(str(holder) for holder in blockers[:3]) or "another sweep"
    return f"waits for {count} {noun}{'s' if count > 1 else ''} held by {held}"
