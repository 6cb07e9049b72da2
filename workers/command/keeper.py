"""Keeps the processes of a command: a small program between a worker and the command.

It adopts every process that the command leaves behind, and kills all of them once the command has
ended, the worker says so, or the worker is dead. It is run as a file by a bare interpreter, so it
imports nothing of this project.

    keeper.py SOCKET FOLDER ARGUMENT ...

SOCKET is the descriptor of a socket to the worker. A byte `T` from there terminates the command, a
`K` or its end kills it. Two lines of JSON come back. The first has `keeper` and `leader`, the
identities of this process and of the command. The second follows at the end: `status`, the exit
status (below 0: the signal that ended the command), `largest_bytes`, the memory of the largest of
its processes, `left`, the number of processes that it left behind, and `error`, why it could not be
started.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

PARENT_DEATH_SIGNAL = 1  # of prctl
CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.002  # between two looks for processes that are left


def main(socket: int, folder: str, command: list[str]) -> None:
    """Run a command to its end."""
    if os.fork():  # so the worker has no child: whoever kills its children leaves this process
        os._exit(0)
    os.set_inheritable(socket, False)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _prctl(CHILD_SUBREAPER, 1)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    errors, errors_of_child = os.pipe()
    leader = os.fork()
    if leader == 0:
        _become(command, folder, errors_of_child)
    os.close(errors_of_child)
    for stream in (0, 1, 2):  # the ends of the pipes are the command's alone
        os.close(stream)
    _say(socket, keeper=os.getpid(), leader=leader)
    error = _all_of(errors)
    status = _wait(leader, socket, woken)
    left = _kill_rest()
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    _say(socket, status=status, largest_bytes=largest * unit, left=left, error=error)


def _say(socket: int, **message: int | str) -> None:
    with contextlib.suppress(OSError):  # the worker is dead
        os.write(socket, json.dumps(message).encode() + b"\n")


def _become(command: list[str], folder: str, errors: int) -> None:
    """Turn this process into the command, in a session of its own."""
    what = "a session"
    try:
        os.setsid()
        _prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        what = f"its folder {folder!r}"
        os.chdir(folder)
        what = repr(command[0])
        os.execvp(command[0], command)
    except OSError as error:
        os.write(errors, f"{what}: {error.strerror}".encode())
    finally:
        os._exit(127)


def _all_of(descriptor: int) -> str:
    found = b""
    while part := os.read(descriptor, 4096):
        found += part
    os.close(descriptor)
    return found.decode(errors="replace")


def _wait(leader: int, socket: int, woken: int) -> int:
    """Wait for the command, and do meanwhile what the worker says; returns its exit status."""
    status: int | None = None
    polled = select.poll()
    polled.register(socket, select.POLLIN)
    polled.register(woken, select.POLLIN)
    while status is None:
        for descriptor, _ in polled.poll():
            if descriptor == woken:
                os.read(woken, 4096)
                continue
            if _verb(socket) == b"T":
                _signal_group(leader, signal.SIGTERM)
            else:
                _signal_group(leader, signal.SIGKILL)
                polled.unregister(socket)
        while (ended := _reap()) is not None:
            if ended[0] == leader:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def _verb(socket: int) -> bytes:
    try:
        return os.read(socket, 1)
    except OSError:  # the worker is dead
        return b""


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(leader, number)


def _kill_rest() -> int:
    """Kill the processes that the command has left behind; returns how many were found."""
    found: set[int] = set()
    while True:
        while _reap() is not None:
            pass
        children = _children()
        if not children:
            return len(found)
        for child in children:
            found.add(child)
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _reap() -> tuple[int, int] | None:
    """A child that has ended, with its status; None if there is none now."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _children() -> list[int]:
    """The children of this process; it has adopted those of its dead children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(number) for number in file.read().split()]
    except OSError:  # another system: it adopts none
        return []


def _prctl(option: int, value: int) -> None:
    """A system call of Linux; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
