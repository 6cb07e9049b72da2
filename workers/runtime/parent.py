"""The parent of attempts: it imports and loads everything once, and forks a process for each rank.

`workers.runtime.processes.Parent` starts it and asks it for processes. It has one thread, uses no
GPU and computes nothing: what runs in a forked process ends with it.

A forked process tells which modules of installed packages it has imported. The parent imports them
too, so that the next process finds them.
"""

import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from json import dumps, loads
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from .child import Child, end_session, set_oom_score
from .pickling import is_installed, read_objective

OOM_SCORE: Final = 250  # of 1000; that of a controller is 0, and a forked process has more
WORTH_SECONDS: Final = 0.05  # of loading, to be done once for all processes
LOOK_SECONDS: Final = 1.0  # between two looks at the forked processes, if no signal comes
MODULES_AT_ONCE: Final = 500  # in one message; it must fit the buffer of a socket
_TASKS: Final = Path("/proc/self/task")
_NOT_INITIALIZED: Final = 3  # CUDA_ERROR_NOT_INITIALIZED
# What the parent imports must start no pool of threads: none outlives a fork. CUDA must not begin.
ENVIRONMENT: Final = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCH_WARM_POOL": "0",
}
# How much the parent loads, if a fork is not safe after more.
ALL, OWN, NOTHING = "all", "own", "nothing"


class Loaded(NamedTuple):
    """The parent can fork; `broken` says why nothing can be run, `why` why it loads less."""

    broken: str
    why: str = ""


class Start(NamedTuple):
    """A request for a process; its socket follows.

    `given` are the parameters, the data and the fixed section of a workload, and the seed.
    """

    key: int
    given: tuple[Any, ...] = ()


class Forked(NamedTuple):
    """The process of a request."""

    key: int
    pid: int


class Reaped(NamedTuple):
    """A process is gone, with its exit status; below 0 the signal that has ended it."""

    pid: int
    status: int


def unsafe_to_fork() -> str:
    """Why a process that is forked from this one may hang or cannot use a GPU; "" if it is safe."""
    try:
        names = [(task / "comm").read_text() for task in _TASKS.iterdir()]
    except OSError:
        return "this system does not tell how many threads a process has"
    # NVML may keep a thread of this name; CUDA begins in a fork all the same.
    threads = sum(not name.startswith("cuda") for name in names) - 1
    if threads > 0:
        return f"what was imported has started {threads} threads"
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)  # fails if it is not loaded
        if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALIZED:
            return "what was imported has started the driver of the GPUs"
    return ""


def main(
    control: str, objective: str, workload: str, threads: str, gpus: str, load: str, why: str
) -> NoReturn:
    """Fork processes until the one that has started this one is gone.

    Args:
        control: descriptor of a socket to the process that has started this one.
        objective: descriptor of a file with the pickled objective; below 0 if there is none.
        workload: name of the workload; "" if there is none.
        threads: CPU threads of a rank.
        gpus: GPUs of a rank.
        load: `ALL`, `OWN` (not what its processes import) or `NOTHING`; `why` it is less than all.
    """
    faulthandler.enable()  # a segmentation fault writes its stack to the rank's log
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    set_oom_score(OOM_SCORE)
    os.set_inheritable(int(control), False)
    target = Target(int(objective), workload or None, int(threads))
    _Parent(Connection(int(control)), target, load, why, alone=float(gpus) > 0).serve()


class Target:
    """What ranks run.

    Args:
        objective: descriptor of its file; below 0 if there is none.
        workload: name of the workload; None if there is an objective.
        threads: CPU threads of a rank.
    """

    def __init__(self, objective: int, workload: str | None, threads: int) -> None:
        self._file, self._workload, self.threads = objective, workload, threads
        self._loaded = False
        self.objective: Callable[[Any], Any] | None = None
        self.broken = ""

    def load(self) -> None:
        """Import and unpickle it; `broken` says why that fails."""
        if self._loaded:
            return
        self._loaded = True
        try:
            if self._file >= 0:
                # Opened anew: several parents share the descriptor and its position.
                with Path(f"/dev/fd/{self._file}").open("rb") as content:
                    self.objective = read_objective(content)
            if self._workload is not None:
                from workers.workloads import WORKLOADS

                WORKLOADS.get(self._workload)
            if "torch" in sys.modules:  # else each first step of an optimizer would import it
                importlib.import_module("torch._dynamo")
        except BaseException as error:  # an import may call sys.exit
            self.broken = f"{type(error).__name__}: {error}"

    def load_data(self, given: tuple[Any, ...]) -> bool:
        """Let the workload load its data; whether that took so long that processes should have it.

        An error of the data comes again in the attempt, which tells it.
        """
        begun = time.monotonic()
        if self._loaded and self._workload is not None and not self.broken:
            from workers.workloads import WORKLOADS

            *sections, seed = given
            with suppress(Exception):
                WORKLOADS.get(self._workload)(*sections, seed=seed).load_data()
        return time.monotonic() - begun > WORTH_SECONDS


class _Parent:
    def __init__(
        self, control: Connection, target: Target, load: str, why: str, *, alone: bool
    ) -> None:
        self._control, self._target, self._load = control, target, load
        self._alone = alone  # a rank needs the whole GPU: the one before must be gone
        self._environment = dict(os.environ)  # what is imported may change it
        self._pids: set[int] = set()
        self._spare: tuple[int, Connection] | None = None  # forked ahead
        self._told, self._tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._tell.setblocking(False)
        self._tried: set[str] = set()  # modules
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its processes end by themselves
        if load != NOTHING:
            target.load()
            self._check_safe()
        gc.collect()
        gc.freeze()  # what is shared stays shared, and is not scanned by each process
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake)
        control.send(Loaded(target.broken, why))

    def serve(self) -> NoReturn:
        while True:
            ready = wait([self._control, self._told, self._woken], LOOK_SECONDS)
            if self._woken in ready:
                os.read(self._woken, 1 << 12)
            self._reap()
            if self._told in ready:
                with suppress(ValueError):  # the objective can write to the socket
                    self._import(loads(self._told.recv(1 << 18)))
            if self._control in ready:
                self._answer()
            elif self._spare is None and self._pids:
                self._spare = self._fork()

    def _answer(self) -> None:
        try:
            start: Start = self._control.recv()
            handle = recv_handle(self._control)
        except (EOFError, OSError):
            self._end()
        while self._alone and self._pids:  # the GPU's memory is free once they are gone
            self._reap(os.WEXITED)
        pid, connection = self._spare or self._fork()
        self._spare = None
        self._pids.add(pid)
        self._control.send(Forked(start.key, pid))
        with suppress(OSError):  # it has died, which is noticed soon
            send_handle(connection, handle, pid)
        connection.close()
        os.close(handle)
        if self._target.load_data(start.given):  # the next processes have it
            self._forget_spare()
            self._check_safe()

    def _fork(self) -> tuple[int, Connection]:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            return pid, Connection(ours.detach())
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            ours.close()
            self._control.close()
            self._told.close()
            for end in (self._woken, self._wake):
                os.close(end)
            self._become(Connection(theirs.detach()))
        finally:
            os._exit(1)

    def _become(self, connection: Connection) -> None:
        """In the forked process: wait for the socket of a rank, then run it."""
        try:
            handle = recv_handle(connection)
        except (EOFError, OSError, RuntimeError):
            os._exit(0)  # it is not needed
        connection.close()
        known = set(sys.modules)
        Child(Connection(handle), self._target, lambda: self._tell_imported(known)).run()

    def _tell_imported(self, known: set[str]) -> None:
        """In the forked process: tell the parent what it has imported since."""
        new = [name for name in list(sys.modules) if name not in known]
        known |= set(new)
        with suppress(Exception):  # the socket is full, or a module is none
            names = [name for name in new if is_installed(sys.modules.get(name))]
            for first in range(0, len(names) if self._load == ALL else 0, MODULES_AT_ONCE):
                self._tell.send(dumps(names[first : first + MODULES_AT_ONCE]).encode())

    def _import(self, names: list[str]) -> None:
        """Import what a process has told; what was forked ahead lacks it."""
        missing = [n for n in names if n not in sys.modules and n not in self._tried]
        self._tried |= set(missing)
        for name in missing:
            with suppress(BaseException):  # it may need what the process had set up before
                importlib.import_module(name)
        if not missing:
            return
        self._forget_spare()
        self._check_safe()

    def _forget_spare(self) -> None:
        """What was forked ahead lacks what the parent has loaded since."""
        if self._spare is not None:
            self._spare[1].close()
            self._spare = None
        gc.collect()
        gc.freeze()

    def _check_safe(self) -> None:
        """Begin anew with less if a fork is not safe any more; the forked processes go on."""
        if not (why := unsafe_to_fork()):
            return
        load = OWN if self._tried else NOTHING
        signal.set_wakeup_fd(-1)
        for number in (self._control.fileno(), self._target._file):
            if number >= 0:
                os.set_inheritable(number, True)
        command = [sys.executable, *sys.orig_argv[1:]]
        place = command.index("--") + 1
        command[place : place + 2] = [load, why]
        os.execve(sys.executable, command, self._environment)

    def _reap(self, options: int = os.WEXITED | os.WNOHANG) -> None:
        """Tell which processes have ended; what they have started ends too."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, options | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            pid = found.si_pid
            end_session(pid)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            options |= os.WNOHANG
            if self._spare is not None and pid == self._spare[0]:
                self._spare[1].close()
                self._spare = None
            self._pids.discard(pid)
            with suppress(OSError):
                self._control.send(Reaped(pid, status))

    def _end(self) -> NoReturn:
        """The process that has started this one is gone: end with all that runs."""
        for pid in self._pids | ({self._spare[0]} if self._spare else set()):
            end_session(pid)
        while self._pids:
            self._reap(os.WEXITED)
        os._exit(0)
