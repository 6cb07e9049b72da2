"""A command as the objective of a sweep: runs it, listens, stops it, and says why it failed."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from search_spaces.errors import StoreError, TrialFailure, UsageError
from workers.failures import DISK_WORDS, MAX_LINE, MEMORY_WORDS, NO_ROOM
from workers.protocol import CHECKPOINTS, LOGS, WORK, Cause, StopRequest, log_name
from workers.runtime.processes import oom_kills, signal_name

from .arguments import Braces, check, with_absolute_path
from .reports import CSV_FILE, REPORTS, Reports

if TYPE_CHECKING:
    from workers.context import Context

SIDE: Final = "side"  # the parameter that chooses one of two commands
FOLDER: Final = "command"  # in the trial's folder
CONFIG: Final = "params.json"
STOP: Final = "stop"
TOLD: Final = ("trial", "trial_dir", "checkpoint_dir", "seed")  # facts in the environment
LOOK: Final = 0.05  # seconds between two looks at files and at the request to stop
EXIT: Final = 0.002  # seconds between two looks whether a program without output has ended
KILL_GRACE: Final = 5.0  # seconds between SIGTERM and SIGKILL
CHUNK_BYTES: Final = 1 << 20
TAIL: Final = 8_000  # characters of an output, for messages
SHOWN_LINES: Final = 3  # of an output, in a message
_PARENT_DEATH_SIGNAL: Final = 1  # of prctl
_PRCTL: Final[Any] = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
_SHELL: Final = 128  # and the number of a signal: a shell's exit status for it
_MEMORY_ERRORS: Final = (*MEMORY_WORDS, "memoryerror")


@dataclass(frozen=True)
class CommandObjective:
    """An objective that runs a program; docs/guides/script.md describes its protocol.

    Args:
        arguments: the program and its arguments, with braces around names of parameters.
        reports: regular expressions by metric, searched in its standard output; `step` is that of
            the step, `file` is a CSV file.
        folder: the working directory of the program.
        goal: the metric whose matches are steps if there is no expression for the step.
        stop_grace: seconds between a request to stop and SIGTERM.
        in_trial: run it in the folder of its trial instead.
        flags: parameters that are flags themselves (`arguments.flags_of`).
        others: what runs instead of it, by value of the trial's parameter `side`.
    """

    checks_goals: ClassVar[bool] = True  # it says itself why the goal has no value

    arguments: tuple[str, ...]
    reports: Mapping[str, str] = field(default_factory=dict)
    folder: str = field(default_factory=lambda: str(Path.cwd()))
    goal: str = ""
    stop_grace: float = 10.0
    in_trial: bool = False
    flags: frozenset[str] = frozenset()
    others: Mapping[str, CommandObjective] = field(default_factory=dict)

    def check(self, names: Collection[str]) -> None:
        """Check everything that can be checked before a trial runs.

        Args:
            names: of the parameters.

        Raises:
            UsageError: an argument names no parameter, or the program, or a script that it runs, is
                not on this machine.
        """
        file = self.reports.get(CSV_FILE, "")
        check([*self.arguments, file], names)
        if file and not self.in_trial and "{" not in file:
            raise UsageError(
                f"all trials would write {file!r}, and read each other's: have the program write "
                "into '{trial_dir}/metrics.csv', and say so in `reports`, or say `cwd: trial`"
            )
        program, *others = self.arguments
        found = shutil.which(Path(self.folder, program) if "/" in program else program)
        said = "" if found or "{" in program else f"program {program!r} that can be run"
        script = next((one for one in others if not one.startswith("-")), "")
        if script.endswith(".py") and "{" not in script and not Path(self.folder, script).exists():
            said = said or f"script {script!r} in {self.folder}"
        if said:
            raise UsageError(f"there is no {said}")

    def __call__(self, context: Context) -> dict[str, float]:
        """Run one attempt at a trial; returns its result.

        Raises:
            CommandFailed: the command has failed.
        """
        command = self.others.get(str(context.params.get(SIDE)), self)
        return CommandAttempt(command, context).run()


class CommandFailed(TrialFailure):
    """A command has failed.

    Args:
        kind, message: see `TrialFailure`.
        shown_traceback: the end of its standard error.
        cause, exit_status: see `Outcome`.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        shown_traceback: str = "",
        cause: Cause | None = None,
        exit_status: int | None = None,
    ) -> None:
        super().__init__(kind, message)
        self.shown_traceback = shown_traceback
        self.cause = cause
        self.exit_status = exit_status


class CommandAttempt:
    """Runs a command as one rank of an attempt.

    Args:
        command: what is run.
        context: this rank's view of the attempt.
    """

    def __init__(self, command: CommandObjective, context: Context) -> None:
        self._command = command
        self._context = context
        self._assignment = a = context.assignment
        self._begun = self._moved = time.monotonic()
        self._resumed = context.resumed  # before this attempt writes anything
        self._files = a.files / FOLDER / f"attempt-{a.attempt}-rank-{context.rank}"
        (a.files / WORK).make()
        self._facts = {
            "trial": str(context.number),
            "trial_dir": str(context.folder / WORK),
            "checkpoint_dir": str(context.checkpoint_dir),
            "seed": str(context.seed),
            "config": str(self._files.path / CONFIG),
        }
        self._folder = self._facts["trial_dir"] if command.in_trial else command.folder
        self._tails = {"stdout": "", "stderr": ""}  # the end of each output
        self._request: StopRequest | None = None
        self._asked_at = math.inf  # when the command was asked to stop
        grace = command.stop_grace
        # By seconds after that; those that were sent are gone.
        self._signals = [(grace, signal.SIGTERM), (grace + KILL_GRACE, signal.SIGKILL)]

    def run(self) -> dict[str, float]:
        """Run the command to its end; returns its result.

        Raises:
            CommandFailed: it has failed.
        """
        a, logs = self._assignment, self._assignment.files / LOGS
        for folder in (logs, self._files):
            folder.make()
        try:
            name = log_name(a.attempt, self._context.rank)
            with logs.file(name).open("ab", buffering=0) as self._log:
                return self._run(Braces(a.params, self._facts, self._command.flags))
        finally:
            with suppress(OSError, StoreError):
                self._files.remove()

    def _run(self, braces: Braces) -> dict[str, float]:
        command, a = self._command, self._assignment
        patterns, goals = dict(command.reports), (*filter(None, [command.goal]), *a.goals)
        file = patterns.pop(CSV_FILE, "")
        table = Path(self._folder, braces.replaced(file) or "") if file else None
        self._reports = Reports(
            self._send, self._say, self._files, patterns, command.goal, goals, table
        )
        self._files.file(CONFIG).write_text(json.dumps(dict(a.params)))
        arguments = braces.fill(command.arguments)
        if command.in_trial:
            arguments = [with_absolute_path(one, command.folder) for one in arguments]
        self._say(f"runs {json.dumps(arguments)}")
        kills = oom_kills()
        try:
            process = started(arguments, self._folder, self._environment())
        except (OSError, ValueError) as error:  # a null byte is no OSError
            raise CommandFailed("crashed", f"the command cannot be started: {error}") from error
        with process:
            self._listen(process)
        self._reports.look(last=True)
        self._conclude(process.returncode, oom_killed=oom_kills() > kills)
        return self._reports.result

    def _environment(self) -> dict[str, str]:
        # If it runs elsewhere, `python -m` and imports find what is beside the program.
        places = (self._command.folder if self._command.in_trial else "", os.getenv("PYTHONPATH"))
        return {
            "PYTHONUNBUFFERED": "1",  # else reports come too late: Python keeps them until 8 kB
            **{name: text for name, text in os.environ.items() if name != "AUTOML_RESUME"},
            **{f"AUTOML_{name.upper()}": self._facts[name] for name in TOLD},
            "AUTOML_PARAMS": self._facts["config"],
            "AUTOML_REPORTS": str(self._files.path / REPORTS),
            "AUTOML_STOP": str(self._files.path / STOP),
            **({"AUTOML_RESUME": "1"} if self._resumed else {}),
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
        }

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Take in output and reports, and pass requests on, until the command has ended."""
        looked = 0.0
        with selectors.DefaultSelector() as selector:
            for name in self._tails:
                selector.register(getattr(process, name), selectors.EVENT_READ, name)
            try:
                while process.poll() is None:
                    for key, _ in selector.select(LOOK if selector.get_map() else EXIT):
                        if not self._take(key.fd, key.data):
                            selector.unregister(key.fileobj)
                    if time.monotonic() - looked >= LOOK:
                        self._reports.look()
                        if process.poll() is None:  # a request that comes now has not stopped it
                            self._supervise(process)
                        looked = time.monotonic()
            finally:
                _signal(process, signal.SIGKILL)  # and what it has left of its group
                process.wait()
            for key in selector.get_map().values():
                os.set_blocking(key.fd, False)  # who has left the group may hold it open
                with suppress(BlockingIOError):
                    while self._take(key.fd, key.data):
                        pass

    def _take(self, descriptor: int, name: str) -> bool:
        """Take in what an output has now; False at its end."""
        chunk = os.read(descriptor, CHUNK_BYTES)
        self._write(chunk)
        self._tails[name] = (self._tails[name] + chunk.decode(errors="replace"))[-TAIL:]
        self._reports.feed(chunk, name)
        return bool(chunk)

    def _supervise(self, process: subprocess.Popen[bytes]) -> None:
        """Pass a request to stop on; raises CommandFailed if a limit of the attempt is broken."""
        now, request = time.monotonic(), self._context.stop_requested()
        if request is not None and self._request is None:
            self._asked_at = now
            self._files.file(STOP).touch()
        self._request = request or self._request
        if self._signals and now - self._asked_at > self._signals[0][0]:
            _signal(process, self._signals.pop(0)[1])
        limit, silent = self._assignment.limits.timeout_seconds, now - self._moved
        if limit is not None and silent > limit:
            raise CommandFailed("timeout", f"no report for {silent:.0f} s", self._tails["stderr"])
        self._context.check_memory()

    def _send(self, step: int, metrics: Mapping[str, float]) -> None:
        self._moved = time.monotonic()
        if self._context.rank == 0:  # what an earlier attempt has trained may be lost
            lost = 0.0 if self._resumed else self._assignment.previous_seconds
            self._context.emit(step, metrics, self._moved - self._begun - lost)

    def _conclude(self, status: int, *, oom_killed: bool) -> None:
        """Set the ending of the attempt; raises CommandFailed if it has failed."""
        context, goal, request = self._context, self._command.goal, self._request
        is_stopped = request is not None and (len(self._signals) < 2 or status == 0)
        if status != 0 and not is_stopped:
            last = self._last_lines().rpartition(" | ")[2]
            raise failure_of(status, self._tails["stderr"], last, oom_killed=oom_killed)
        is_pause = is_stopped and request is StopRequest.PAUSE
        if is_pause and not (self._assignment.files / CHECKPOINTS).names():
            request = StopRequest.STOP
            context.message = (
                "stopped instead of paused, because the command has left nothing in "
                "AUTOML_CHECKPOINT_DIR: it could only begin anew"
            )
        context.stop = request if is_stopped else None
        may_be_silent = is_stopped or self._resumed or context.rank > 0 or not goal
        if not may_be_silent and goal not in self._reports.metrics:
            raise self._nothing_reported()

    def _nothing_reported(self) -> CommandFailed:
        """The failure of a command that has ended well, but has not reported the goal's metric."""
        goal, patterns = self._command.goal, self._command.reports
        found = ", ".join(sorted(self._reports.metrics)) or "none"
        how = (
            f"print '{goal} 0.5', write to AUTOML_REPORTS, or say by `reports` how it is printed "
            f"({goal}: REGEX) or which CSV file has it (file: metrics.csv)"
        )
        if patterns:  # then nothing else is read
            how = f"nothing in `reports` is named {goal}: add {goal}: REGEX"
        if file := patterns.get(CSV_FILE):
            how = f"{file} was not written, or its first line names no column {goal}"
        words = [
            f"the command reported no metric {goal!r}; these were reported: {found}",
            f"no line of its output matches {patterns[goal]!r}" if goal in patterns else how,
            *self._reports.complaints[:1],
            f"the last lines that it printed: {self._last_lines()}",
        ]
        return CommandFailed("missing_metric", "; ".join(words))

    def _last_lines(self) -> str:
        """The last lines of both outputs that are not empty, each cut."""
        outputs = [map(str.strip, tail.splitlines()) for tail in self._tails.values()]
        lasts = [[line[:MAX_LINE] for line in lines if line][-SHOWN_LINES:] for lines in outputs]
        return " | ".join(itertools.chain(*lasts))

    def _say(self, words: str) -> None:
        """Write a line of our own to the trial's log."""
        self._write(f"automl: {words}\n".encode(errors="replace"))

    def _write(self, chunk: bytes) -> None:
        with suppress(OSError):  # a full disk: the trial is not to blame
            self._log.write(chunk)


def started(
    arguments: Sequence[str], folder: str, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process with pipes for its output. The kernel kills it if the thread that starts it ends.

    Raises:
        OSError, ValueError: no process can be started, or an argument holds a null byte.
    """
    return subprocess.Popen(
        arguments,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        process_group=0,  # in the session of the attempt, which ends as a whole
        preexec_fn=_end_with_parent,
        bufsize=0,
    )


def _end_with_parent() -> None:
    if _PRCTL is not None:
        _PRCTL(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the process group of a command."""
    with suppress(OSError):
        os.killpg(process.pid, number)


def failure_of(status: int, errors: str, last_line: str, *, oom_killed: bool) -> CommandFailed:
    """The failure of a command that has ended with an error.

    Args:
        status: its exit status; below 0 the signal that ended it.
        errors: the end of its standard error.
        last_line: that it has printed.
        oom_killed: whether the kernel has killed processes for memory meanwhile.
    """
    number = -status if status < 0 else status - _SHELL
    signalled = f"was killed by signal {number} ({signal_name(number)})"
    words = f"the command {signalled if status < 0 else f'ended with exit status {status}'}"
    said = f"{words}: {last_line}" if last_line else words
    kind, cause = "crashed", Cause.SIGNALLED if status < 0 else Cause.EXITED
    if number == signal.SIGKILL and oom_killed:
        kind, cause = "out_of_memory", Cause.KILLED
        said = f"the machine ran out of memory and its kernel killed the command: {words}"
    elif number in (signal.SIGKILL, signal.SIGTERM):
        kind, cause, said = "preempted", Cause.KILLED, f"{words} from outside"
    elif any(word in errors.lower() for word in DISK_WORDS):
        kind, cause, said = "preempted", Cause.DISK, f"{NO_ROOM}: {said}"
    elif any(word in errors.lower() for word in _MEMORY_ERRORS):
        kind = "out_of_memory"
    return CommandFailed(kind, said, errors, cause, status)
