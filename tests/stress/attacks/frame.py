"""What an attack is, how the attacks of this folder are found, and what they share.

An attack is a function of an empty folder that does its worst there and returns what it has
observed, in one line. It raises AssertionError (or anything else) if what must hold does not:

    @attack("the next controller resumes", quick=True)
    def kill_a_controller(folder: Path) -> str:
        ...
        assert lost == 0, f"{lost} trials are gone"
        return "3 kills, nothing lost"

Each attack runs in a process of its own. It may leave processes behind, unless they begin sessions
of their own: they end with it.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

PRELOAD = ["torch", "workers.run", "automl.cli", "automl.sweeps", "automl.suggesters.random"]
SHOWN = 300  # characters of an observation
_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Attack:
    """An attack and what must hold.

    Args:
        module, name: of its function.
        holds: what must hold, in one line.
        quick: whether it belongs to the quick half, which runs with the tests.
        seconds: after which it counts as hung.
    """

    module: str
    name: str
    holds: str
    quick: bool
    seconds: float
    act: Callable[[Path], str]

    @property
    def subject(self) -> str:
        """The name of its file."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True)
class Observed:
    """What became of an attack; `held` is False if it broke something or hung."""

    attack: Attack
    held: bool
    text: str
    seconds: float


def attack(
    holds: str, *, quick: bool = False, seconds: float = 60.0
) -> Callable[[Callable[[Path], str]], Attack]:
    """Make a function an attack."""

    def made(act: Callable[[Path], str]) -> Attack:
        return Attack(act.__module__, act.__name__, holds, quick, seconds, act)

    return made


def attacks() -> list[Attack]:
    """Every attack of this folder, by file."""
    package = sys.modules[__package__]
    found = []
    for info in pkgutil.iter_modules(package.__path__, f"{__package__}."):
        module = importlib.import_module(info.name)
        found += [value for value in vars(module).values() if isinstance(value, Attack)]
    return [made for made in found if made.module.startswith(f"{__package__}.")]


def conduct(attack: Attack) -> Observed:
    """Run an attack in a process of its own; everything that it leaves behind is removed."""
    _CONTEXT.set_forkserver_preload(PRELOAD)
    ours, theirs = _CONTEXT.Pipe()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        process = _CONTEXT.Process(target=_act, args=(attack.module, attack.name, folder, theirs))
        process.start()
        theirs.close()
        try:
            answered = ours.poll(attack.seconds)
            held, text = ours.recv() if answered else (False, f"hangs for {attack.seconds:.0f} s")
        except EOFError:
            process.join()
            held, text = False, f"its process ended with {process.exitcode}"
        finally:
            _end(process.pid or 0)
            process.join()
            ours.close()
    text = " ".join(text.split())
    return Observed(attack, held, text[:SHOWN], time.monotonic() - begun)


def automl(
    folder: Path, *arguments: str, seconds: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder. If it takes longer than `seconds`, the attack fails.

    It is a fork of this process, which has imported everything already.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            for number, file in ((1, output), (2, errors)):
                os.dup2(file.fileno(), number)
            _become(folder, arguments, environment)
        status = _wait(pid, seconds)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "surrogateescape"))
    return subprocess.CompletedProcess(["automl", *arguments], status, *texts)


def python(
    folder: Path, code: str, *arguments: str, seconds: float = 60.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a folder, with this checkout on the path."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=seconds,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The status and the last line of a command; fails if it shows a traceback."""
    text = done.stdout + done.stderr
    assert "Traceback" not in text, f"a traceback: {text[-SHOWN:]}"
    last = text.strip().splitlines()[-1:] or [""]
    return f"status {done.returncode}: {last[0]}"


def _become(folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run the command line in this process and end it."""
    from automl.cli import main

    status = 1
    try:
        os.chdir(folder)
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = os.fdopen(1, "w", errors="surrogateescape")
        sys.stderr = os.fdopen(2, "w", errors="surrogateescape")
        sys.argv = ["automl", *arguments]
        main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else bool(error.code)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _wait(pid: int, seconds: float) -> int:
    """The exit status of a child, negative for a signal; kills it if it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise TimeoutError(f"it takes longer than {seconds:g} s")
        time.sleep(0.005)


def _act(module: str, name: str, folder: str, answer: Connection) -> None:
    os.setsid()
    os.chdir(folder)
    try:
        found: Attack = getattr(importlib.import_module(module), name)
        answer.send((True, found.act(Path(folder))))
    except BaseException as error:  # of any kind: the attack has broken something
        answer.send((False, f"{type(error).__name__}: {error}"))


def _end(pid: int) -> None:
    """End the group of an attack, which begins its own session."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
