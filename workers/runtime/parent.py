"""The parent of attempts: it imports and loads everything once, and forks a process for each rank.

`workers.runtime.processes.Parent` starts it and asks it for processes. It has one thread, uses no
GPU and computes nothing: what runs in a forked process ends with it.

A forked process tells which modules of installed packages it has imported. The parent imports them
too, so that the next process finds them.

It is sent `(key, assignment, rank, rendezvous)` for each rank. It sends `("loaded", why it is
broken, why it loads less)`, `("forked", key, pid)` followed by the socket of the process, and
`("ended", pid, status)`.

In the process of a rank the main thread runs the rank; a thread receives requests, and another
sends events and heartbeats, so a report costs the trial microseconds.
"""

import ctypes
import faulthandler
import functools
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from json import dumps, loads
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from types import CodeType
from typing import IO, Any, Final, NamedTuple, NoReturn

import cloudpickle
import psutil

from search_spaces.errors import StoreError, UsageError
from workers.context import Context
from workers.protocol import (
    Assignment,
    Event,
    Started,
    StopRequest,
    open_log,
)
from workers.run import run

TAKE_SECONDS: Final = 1.0  # the longest time between two heartbeats
OOM_SCORE: Final = 500  # of 1000; that of a controller is 0
LOG_BYTES: Final = 64 << 20
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
WORTH_SECONDS: Final = 0.05  # of loading, to be done once for all processes
LOOK_SECONDS: Final = 0.02  # between two looks at the forked processes
MODULES_AT_ONCE: Final = 500  # in one message; it must fit the buffer of a socket
_TASKS: Final = Path("/proc/self/task")
_NOT_INITIALIZED: Final = 3  # CUDA_ERROR_NOT_INITIALIZED
# What the parent imports must start no pool of threads: none outlives a fork. CUDA must not begin.
POOLS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ENVIRONMENT: Final = {
    **dict.fromkeys(POOLS, "1"),
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCH_WARM_POOL": "0",
}
# How much the parent loads, if a fork is not safe after more.
ALL, OWN, NOTHING = "all", "own", "nothing"

# Folders of modules that workers import by name; a worker that lacks one says so itself.
_INSTALLED: Final = tuple(
    folder + os.sep
    for folder in (
        *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[1]),
    )
)


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


class ForkServer:
    """Forks processes until the one that has started this one is gone.

    Args:
        control: descriptor of a socket to the process that has started this one.
        objective: descriptor of a file with the pickled objective; below 0 if there is none.
        workload: name of the workload; "" if there is none.
        gpus: GPUs of a rank.
        load: `ALL`, `OWN` (not what its processes import) or `NOTHING`.
    """

    def __init__(self, control: str, objective: str, workload: str, gpus: str, load: str) -> None:
        faulthandler.enable()  # a segmentation fault writes its stack to the rank's log
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # its processes end by themselves
        self._control, self._file = Connection(int(control)), int(objective)
        self._workload, self._load = workload, load
        self._alone = float(gpus) > 0  # a rank needs the whole GPU: the one before must be gone
        self._objective: Any = None
        self._pids: set[int] = set()
        self._spare: tuple[int, Connection] | None = None  # forked ahead
        self._told, self._tell = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._tell.setblocking(False)
        self._tried: set[str] = set()  # modules

    def serve(self, why: str) -> NoReturn:
        """Load what ranks run, then fork; `why` says why less than all is loaded."""
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

    def _answer(self) -> None:
        """Give a rank its process; then let the workload load its data, for the next ones."""
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
        except (EOFError, OSError):  # the process that has started this one is gone
            for running in self._pids:
                end_session(running)
            while self._pids:
                self._reap()
            os._exit(0)
        if self._workload and self._load != NOTHING:
            from workers.workloads import WORKLOADS

            begun, a = time.monotonic(), given[0]
            with suppress(Exception):  # an error of the data comes again in the attempt
                WORKLOADS.get(self._workload)(a.params, a.data, a.fixed, seed=a.seed).load_data()
            if time.monotonic() - begun > WORTH_SECONDS:
                self._changed()

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
            os._exit(0)
        except BaseException:  # such as that nobody waits for it any more
            traceback.print_exc()
        os._exit(1)

    def _tell_imported(self, known: set[str]) -> None:
        """In the forked process: tell the parent what it has imported since."""
        new = [name for name in list(sys.modules) if name not in known]
        known |= set(new)
        with suppress(Exception):  # the socket is full, or a module is none
            files = {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in new}
            names = [name for name in new if files[name].startswith(_INSTALLED)]
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


class News(NamedTuple):
    """Events of a rank that runs, with a sign of life.

    `idle_seconds` is the time since its last step or report; a step ends when the rank polls for a
    stop request.
    """

    events: list[Event]
    idle_seconds: float


class Child:
    """Runs one rank. `run` is called in the main thread.

    Args:
        pipe: to the process that supervises the rank; what is to be run comes first.
        load: returns the user's objective, or None if a workload is run.
        tell_imported: called now and then, and at the end, for the parent.
    """

    def __init__(
        self, pipe: Connection, load: Callable[[], Any], tell_imported: Callable[[], None]
    ) -> None:
        self._pipe, self._load, self._tell_imported = pipe, load, tell_imported
        self._mail: deque[Event] = deque()
        self._arrived, self._sending = threading.Event(), threading.Lock()
        self._stop_request: StopRequest | None = None
        self._moved = time.monotonic()
        self._preempted, self._meeting = False, ""
        self._log = sys.stdout  # until it is open

    def run(self) -> None:
        """Wait for a rank, run it to its end, and tell its outcome."""
        with suppress(OSError, AttributeError):  # not Linux
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            # The kernel kills it before the controller if memory runs out.
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        assignment, rank, self._meeting = self._pipe.recv()
        self._send_all()  # the first sign of life
        self._run_rank(assignment, rank)
        self._send_all()
        while assignment.num_ranks > 1:  # the others may still meet at this process
            signal.pause()

    def _run_rank(self, a: Assignment, rank: int) -> None:
        """Run the rank; its output, and that of what it starts, goes to its log."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        # What the objective forks ends as any other process.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        with suppress(OSError, StoreError):  # `run` says what is wrong
            self._log = open_log(a, rank)
            os.dup2(self._log.fileno(), 1)
            os.dup2(self._log.fileno(), 2)
        faulthandler.register(signal.SIGQUIT)  # writes the stacks of an attempt that hangs
        print(f"{a.label} (its seed is {a.seed})")
        for work in (self._receive, self._send):
            threading.Thread(target=work, name="automl", daemon=True).start()
        objective = self._load()
        for variable in POOLS:  # the parent has loaded the libraries on one thread
            os.environ[variable] = str(a.threads)
        if a.threads > 1:
            import threadpoolctl

            threadpoolctl.threadpool_limits(a.threads)
        if rank == 0:
            self._post(Started(a.trial, a.attempt, f"{socket.gethostname()}:{os.getpid()}"))
        self._context = Context(  # other ranks may still be leaving its meeting
            a,
            send=self._post if rank == 0 else lambda report: None,
            stop_requested=self._stop_requested,
            rank=rank,
            world_size=a.num_ranks,
            rendezvous=self._meeting,
            device="cuda:0" if a.gpus > 0 else "cpu",
        )
        outcome = run(self._context, objective)
        if self._preempted and not outcome.message:
            outcome = replace(outcome, message="the machine of its worker is being taken away")
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # an objective may have closed it
                stream.flush()
        ctypes.CDLL(None).fflush(None)  # of C libraries
        shorten(self._log)
        self._tell_imported()
        self._post(outcome)

    def _receive(self) -> None:
        """Take requests to stop. If the controller is gone, end with all that runs here."""
        with suppress(EOFError, OSError):
            while True:
                self._stop_request = self._pipe.recv()
        if self._meeting.startswith("file://"):
            Path(self._meeting.removeprefix("file://")).unlink(missing_ok=True)
        end_session(os.getpid())

    def _send(self) -> None:
        with suppress(OSError):  # the controller is gone, or the objective has closed the pipe
            while True:
                self._arrived.wait(TAKE_SECONDS)
                self._arrived.clear()
                self._send_all()
                self._tell_imported()
                shorten(self._log)

    def _send_all(self) -> None:
        with self._sending:
            events = [self._mail.popleft() for _ in range(len(self._mail))]
            self._pipe.send(News(events, time.monotonic() - self._moved))

    def _post(self, event: Event) -> None:
        self._moved = time.monotonic()
        self._mail.append(event)
        self._arrived.set()

    def _stop_requested(self) -> StopRequest | None:
        self._moved = time.monotonic()
        return self._stop_request or (StopRequest.INTERRUPT if self._preempted else None)

    def _on_sigterm(self, *_: Any) -> None:
        """The machine is about to be taken away: ask the attempt to stop with a checkpoint."""
        self._preempted = True


def shorten(log: IO[str], most: int = LOG_BYTES) -> None:
    """Cut the middle out of a log, which is open to read and append, if it has over `most` bytes.

    The first half of `most` and the newest quarter stay. What is written in the moment of the cut
    is lost.
    """
    with suppress(OSError):
        size = os.fstat(log.fileno()).st_size
        if size > most:
            newest = os.pread(log.fileno(), most // 4, size - most // 4)
            os.ftruncate(log.fileno(), most // 2)
            os.write(log.fileno(), b"\n... the middle of this log is left out ...\n" + newest)


def end_session(leader: int) -> None:
    """Kill a process that leads a session, and all of its session: programs have their own groups.

    The leader ends last, so that nobody else gets its number before.
    """
    killed = {leader}
    while found := {pid for pid in psutil.pids() if _session(pid) == leader} - killed:
        killed |= found
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.kill(leader, signal.SIGKILL)


def _session(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


def pickle_objective(objective: Callable[[Any], Any], file: IO[bytes]) -> None:
    """Write the objective to a file, for `read_objective`.

    What comes from the script itself is pickled by value. Workers begin with the arguments, working
    folder and paths of this process.

    Raises:
        UsageError: the objective holds an object that cannot be pickled, such as an open file.
    """
    folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
    script = (list(sys.argv), str(Path.cwd()) if Path().exists() else "", folders)
    try:
        for part in (script, objective):
            _Pickler(file, protocol=5).dump(part)
    except Exception as error:  # of any kind, from the parts of the objective
        raise UsageError(
            f"the objective cannot be sent to workers: {error}. Make such an object inside the "
            'objective, or run trials in this process: dispatcher="inline"'
        ) from None


def read_objective(file: Any) -> Callable[[Any], Any]:
    """What `pickle_objective` has written; this process is set up as the script's was."""
    arguments, folder, paths = pickle.load(file)
    sys.path += [path for path in paths if path not in sys.path]  # the objective may need them
    sys.argv[:] = arguments
    with suppress(OSError):  # another machine may lack it
        os.chdir(folder)
    objective: Callable[[Any], Any] = pickle.load(file)
    names = getattr(objective, "__globals__", {})
    # Objects of the script's classes are pickled by the names that `__main__` has.
    main = {k: v for k, v in names.items() if getattr(v, "__module__", "") == "__main__"}
    vars(sys.modules["__main__"]).update(main)
    return objective


def _reduce_cached(cached: Any) -> Any:
    if cached.__module__ != "__main__":
        return cached.__reduce__()
    return _cached, (cached.__wrapped__, cached.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """An empty cache of a function."""
    return functools.lru_cache(**parameters)(function)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    return _code, (code.co_filename, *cloudpickle.CloudPickler.dispatch_table[CodeType](code))


def _code(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Takes cached functions too, and keeps the files of functions, which tracebacks name."""

    dispatch_table = cloudpickle.CloudPickler.dispatch_table.new_child(
        {
            functools._lru_cache_wrapper: _reduce_cached,
            CodeType: _reduce_code,
        }
    )
