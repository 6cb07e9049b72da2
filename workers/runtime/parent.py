"""The parent of attempts: it imports and loads everything once, and forks a process for each rank.

`workers.runtime.processes.Parent` starts it and asks it for processes. It has one thread, uses no
GPU and computes nothing: what runs in a forked process ends with it.

A forked process tells which modules of installed packages it has imported. The parent imports them
too, so that the next process finds them.

It is sent `(key, assignment, rank, rendezvous)` for each rank. It sends `("loaded", why it is
broken, why it loads less)`, `("forked", key, pid)` followed by the socket of the process, and
`("ended", pid, status)`.
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
from contextlib import suppress
from json import dumps, loads
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Final, NoReturn

from workers.protocol import Assignment

from .child import Child, end_session
from .pickling import is_installed, read_objective

WORTH_SECONDS: Final = 0.05  # of loading, to be done once for all processes
LOOK_SECONDS: Final = 0.02  # between two looks at the forked processes
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


def main(control: str, objective: str, workload: str, gpus: str, load: str, why: str) -> NoReturn:
    """Fork processes until the one that has started this one is gone.

    Args:
        control: descriptor of a socket to the process that has started this one.
        objective: descriptor of a file with the pickled objective; below 0 if there is none.
        workload: name of the workload; "" if there is none.
        gpus: GPUs of a rank.
        load: `ALL`, `OWN` (not what its processes import) or `NOTHING`; `why` it is less than all.
    """
    faulthandler.enable()  # a segmentation fault writes its stack to the rank's log
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its processes end by themselves
    parent = _Parent(Connection(int(control)), int(objective), workload, load, float(gpus) > 0)
    parent.serve(why)


class _Parent:
    def __init__(
        self, control: Connection, file: int, workload: str, load: str, alone: bool
    ) -> None:
        self._control, self._file, self._workload, self._load = control, file, workload, load
        self._alone = alone  # a rank needs the whole GPU: the one before must be gone
        self._objective: Any = None
        self._pids: set[int] = set()
        self._spare: tuple[int, Connection] | None = None  # forked ahead
        self._told, self._tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._tell.setblocking(False)
        self._tried: set[str] = set()  # modules

    def serve(self, why: str) -> NoReturn:
        broken = ""
        if self._load != NOTHING:
            try:
                self._objective = self._loaded()
            except BaseException as error:  # an import may call sys.exit
                broken = f"{type(error).__name__}: {error}"
            self._changed()
        self._control.send(("loaded", broken, why))
        while True:
            ready = wait([self._control, self._told], LOOK_SECONDS)
            self._reap()
            if self._told in ready:
                with suppress(ValueError):  # the objective can write to the socket
                    self._import(loads(self._told.recv(1 << 18)))
            if self._control in ready:
                self._answer()
            elif self._spare is None and self._pids:
                self._spare = self._fork()

    def _loaded(self) -> Any:
        """Import and unpickle what ranks run; returns the objective if there is one."""
        objective = None
        if self._file >= 0:
            # Opened anew: several parents share the descriptor and its position.
            with Path(f"/dev/fd/{self._file}").open("rb") as content:
                objective = read_objective(content)
        if self._workload:
            from workers.workloads import WORKLOADS

            WORKLOADS.get(self._workload)
        if "torch" in sys.modules:  # else each first step of an optimizer would import it
            importlib.import_module("torch._dynamo")
        return objective

    def _load_data(self, a: Assignment) -> None:
        """Let the workload load its data, so that the next processes have it.

        An error of the data comes again in the attempt, which tells it.
        """
        from workers.workloads import WORKLOADS

        begun = time.monotonic()
        with suppress(Exception):
            WORKLOADS.get(self._workload)(a.params, a.data, a.fixed, seed=a.seed).load_data()
        if time.monotonic() - begun > WORTH_SECONDS:
            self._changed()

    def _answer(self) -> None:
        try:
            key, *given = self._control.recv()
            while self._alone and self._pids:  # the GPU's memory is free once they are gone
                time.sleep(LOOK_SECONDS / 10)
                self._reap()
            pid, connection = self._spare or self._fork()
            self._spare = None
            self._pids.add(pid)
            self._control.send(("forked", key, pid))
            with suppress(OSError):  # it has died, which is noticed soon
                connection.send(given)
            send_handle(self._control, connection.fileno(), os.getppid())
            connection.close()
        except (EOFError, OSError):
            self._end()
        if self._workload and self._load != NOTHING:
            self._load_data(given[0])

    def _fork(self) -> tuple[int, Connection]:
        """Fork a process that waits for its rank."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid:
            theirs.close()
            return pid, Connection(ours.detach())
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            for end in (ours, self._control, self._told):
                end.close()
            known = set(sys.modules)
            load = self._loaded if self._load == NOTHING else lambda: self._objective
            Child(Connection(theirs.detach()), load, lambda: self._tell_imported(known)).run()
        finally:
            os._exit(1)

    def _tell_imported(self, known: set[str]) -> None:
        """In the forked process: tell the parent what it has imported since."""
        new = [name for name in list(sys.modules) if name not in known]
        known |= set(new)
        with suppress(Exception):  # the socket is full, or a module is none
            names = [name for name in new if is_installed(sys.modules.get(name))]
            for first in range(0, len(names) if self._load == ALL else 0, MODULES_AT_ONCE):
                self._tell.send(dumps(names[first : first + MODULES_AT_ONCE]).encode())

    def _import(self, names: list[str]) -> None:
        """Import what a process has told."""
        missing = [n for n in names if n not in sys.modules and n not in self._tried]
        self._tried |= set(missing)
        for name in missing:
            with suppress(BaseException):  # it may need what the process had set up before
                importlib.import_module(name)
        if missing:
            self._changed()

    def _changed(self) -> None:
        """More is loaded: what was forked ahead lacks it, and a fork may not be safe any more.

        Then this process begins anew with less; the forked processes go on.
        """
        if self._spare is not None:
            self._spare[1].close()
            self._spare = None
        gc.collect()
        gc.freeze()  # what is shared stays shared, and is not scanned by each process
        if why := unsafe_to_fork():
            command = [sys.executable, *sys.orig_argv[1:]]
            command[8:10] = [OWN if self._tried else NOTHING, why]
            os.execv(sys.executable, command)

    def _reap(self) -> None:
        """Tell which processes have ended; what they have started ends too."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                end_session(found.si_pid)
                status = os.waitstatus_to_exitcode(os.waitpid(found.si_pid, 0)[1])
                if self._spare is not None and self._spare[0] == found.si_pid:
                    self._spare = None
                self._pids.discard(found.si_pid)
                with suppress(OSError):
                    self._control.send(("ended", found.si_pid, status))

    def _end(self) -> NoReturn:
        """The process that has started this one is gone: end with all that runs."""
        for pid in self._pids:
            end_session(pid)
        while self._pids:
            self._reap()
        os._exit(0)
