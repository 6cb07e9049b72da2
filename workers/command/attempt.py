"""One attempt at a trial by a command: runs it, listens, stops it, and says why it failed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from search_spaces.errors import StoreError, TrialFailure
from workers.failures import DISK_WORDS, MEMORY_WORDS, NO_ROOM
from workers.protocol import Cause, StopRequest
from workers.runtime.gang import oom_kills

from .arguments import Braces, with_absolute_path
from .csv_file import CSV_FILE, place_of
from .metrics import Collector
from .output import Tail, TrialLog
from .process import CommandProcess, End, read_some
from .sources import Sources

if TYPE_CHECKING:
    from workers.context import Context

    from .command import CommandObjective


FOLDER: Final = "command"  # in the trial's folder
REPORTS: Final = "reports.jsonl"
CONFIG: Final = "params.json"
STOP: Final = "stop"
LOOK_SECONDS: Final = 0.05  # between two looks at files and at the request to stop
EXIT_SECONDS: Final = 0.002  # between two looks whether a program without output has ended
KILL_GRACE: Final = 5.0  # seconds between SIGTERM and SIGKILL


class CommandAttempt:
    """Runs a command as one rank of an attempt.

    Args:
        command: what is run.
        context: this rank's view of the attempt.
    """

    def __init__(self, command: CommandObjective, context: Context) -> None:
        self._command = command
        self._context = context
        self._assignment = context.assignment
        self._begun = self._moved = time.monotonic()
        self._resumed = context.resumed  # before this attempt writes anything
        self._files = (
            context.files / FOLDER / f"attempt-{self._assignment.attempt}-rank-{context.rank}"
        )
        params = self._assignment.params
        facts = {
            "trial": str(context.number),
            "trial_dir": str(context.work_dir),
            "checkpoint_dir": str(context.checkpoint_dir),
            "seed": str(context.seed),
            "config": self._path(CONFIG),
        }
        self._braces = Braces(params, facts, command.flags)
        self._folder = facts["trial_dir"] if command.in_trial else command.folder
        self._output = Tail()
        self._errors = Tail()
        self._request: StopRequest | None = None
        self._stop_requested_at = 0.0  # when the command was asked to stop
        self._terminated = False
        self._failure: CommandFailed | None = None  # for which every process was killed

    def run(self) -> dict[str, float]:
        """Run the command to its end; returns its result.

        Raises:
            CommandFailed: it has failed.
        """
        self._files.remove()
        self._files.make()
        try:
            with TrialLog(self._assignment, self._context.rank) as log:
                return self._run(log)
        finally:
            with suppress(OSError, StoreError):
                self._files.remove()

    def _run(self, log: TrialLog) -> dict[str, float]:
        arguments, environment = self._arguments()
        collector = Collector(self._send, log.say)
        sources = self._sources(collector, environment)
        kills = oom_kills()
        log.say(f"runs {json.dumps(arguments)}")
        try:
            process = CommandProcess(arguments, self._folder, environment)
        except (OSError, ValueError) as error:
            raise CommandFailed("crashed", f"the command cannot be started: {error}") from error
        with process:
            end = self._listen(process, sources, log)
        sources.close()
        self._conclude(end, oom_killed=oom_kills() > kills)
        if self._request is None and not self._resumed:
            self._check_metrics(collector)
        return collector.result

    # ------------------------------------------------------------------ what the command gets

    def _environment(self) -> dict[str, str]:
        facts = self._braces.facts
        paths = {
            "AUTOML_REPORTS": self._path(REPORTS),
            "AUTOML_STOP": self._path(STOP),
            "AUTOML_PARAMS": facts["config"],
            "AUTOML_CHECKPOINT_DIR": facts["checkpoint_dir"],
            "AUTOML_TRIAL_DIR": facts["trial_dir"],
            "AUTOML_TRIAL": facts["trial"],
            "AUTOML_SEED": facts["seed"],
        }
        found = {key: value for key, value in os.environ.items() if key != "AUTOML_RESUME"}
        if self._resumed:
            found["AUTOML_RESUME"] = "1"
        # Python keeps what it prints into a pipe until 8 kB are there: reports would come too late.
        started = {"PYTHONUNBUFFERED": "1", **found, **paths}
        if self._command.in_trial:  # `python -m` and imports find what is beside the program
            places = [self._command.folder, started.get("PYTHONPATH", "")]
            started["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        return started

    def _arguments(self) -> tuple[list[str], dict[str, str]]:
        """The program with its arguments, and its environment; writes the file of parameters."""
        given, environment = self._command.arguments, self._environment()
        with self._files.open(CONFIG, "w", encoding="utf-8") as file:
            json.dump(dict(self._assignment.params), file)
        filled = self._braces.fill(given)
        if self._command.in_trial:
            filled = [with_absolute_path(one, self._command.folder) for one in filled]
        return filled, environment

    def _sources(self, collector: Collector, environment: Mapping[str, str]) -> Sources:
        patterns = dict(self._command.reports)
        text = patterns.pop(CSV_FILE, None)
        table = place_of(text, self._braces, environment, self._folder) if text else None
        return Sources(
            collector,
            REPORTS,
            self._files,
            patterns,
            self._command.goal,
            goals=self._assignment.goals or tuple(filter(None, [self._command.goal])),
            table=table,
        )

    def _path(self, name: str) -> str:
        return str(self._files.path / name)

    # ------------------------------------------------------------------ while it runs

    def _listen(self, process: CommandProcess, sources: Sources, log: TrialLog) -> End:
        """Take in output and reports, and pass requests on, until the command has ended."""

        def take_output() -> bool:
            chunk = read_some(process.stdout)
            log.write(chunk)
            self._output.feed(chunk)
            sources.feed(chunk, "stdout")
            return bool(chunk)

        def take_errors() -> bool:
            chunk = read_some(process.stderr)
            log.write(chunk)
            self._errors.feed(chunk)
            sources.feed(chunk, "stderr")
            return bool(chunk)

        looked = 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, take_output)
            selector.register(process.stderr, selectors.EVENT_READ, take_errors)
            while not process.has_ended:
                wait = LOOK_SECONDS if selector.get_map() else EXIT_SECONDS
                for key, _ in selector.select(wait):
                    if not key.data():
                        selector.unregister(key.fileobj)
                if time.monotonic() - looked >= LOOK_SECONDS:
                    sources.look()
                    if not process.has_ended:  # a request that comes now has not stopped it
                        self._supervise(process)
                    looked = time.monotonic()
        end = process.end()
        for stream, take in ((process.stdout, take_output), (process.stderr, take_errors)):
            os.set_blocking(stream.fileno(), False)  # who has left the group may hold it open
            with suppress(BlockingIOError):
                while take():
                    pass
        return end

    def _supervise(self, process: CommandProcess) -> None:
        """Pass a request to stop on, and enforce the limits of the attempt."""
        now = time.monotonic()
        request = self._context.stop_requested()
        if request is not None:
            if self._request is None:
                self._stop_requested_at = now
                self._files.open(STOP, "w").close()
            self._request = request
            if now > self._stop_requested_at + self._command.stop_grace and not self._terminated:
                self._terminated = True
                process.terminate()
            if now > self._stop_requested_at + self._command.stop_grace + KILL_GRACE:
                process.kill()
        if self._failure is None and (failure := self._broken_limit(now)) is not None:
            self._failure = failure
            process.kill()

    def _broken_limit(self, now: float) -> CommandFailed | None:
        limits = self._assignment.limits
        silent = now - self._moved
        if limits.timeout_seconds is not None and silent > limits.timeout_seconds:
            return CommandFailed("timeout", f"no report for {silent:.0f} s", self._errors.text())
        memory = self._context.memory
        if limits.memory_bytes is not None and memory is not None:
            used = memory.bytes()
            if used > limits.memory_bytes:
                message = (
                    f"the processes of the command take {used / 1e6:,.0f} MB, "
                    f"the limit is {limits.memory_bytes / 1e6:,.0f} MB"
                )
                return CommandFailed("out_of_memory", message, self._errors.text())
        return None

    def _send(self, step: int, metrics: Mapping[str, float]) -> None:
        self._moved = time.monotonic()
        if self._context.rank > 0:
            return
        seconds = self._moved - self._begun
        if not self._resumed:  # what an earlier attempt has trained is lost
            seconds -= self._assignment.previous_seconds
        self._context.emit(step, metrics, seconds)

    # ------------------------------------------------------------------ how it ended

    def _conclude(self, end: End, *, oom_killed: bool) -> None:
        """Set the ending of the attempt; raises CommandFailed if it has failed."""
        context = self._context
        if self._failure is not None:
            raise self._failure
        if self._request is not None and (self._terminated or end.status == 0):
            context.accept_stop(self._request)
            if self._request is StopRequest.PAUSE and not _has_files(context.checkpoint_dir):
                context.accept_stop(StopRequest.STOP)
                context.message = (
                    "stopped instead of paused, because the command has left nothing in "
                    "AUTOML_CHECKPOINT_DIR: it could only begin anew"
                )
            return
        self._request = None
        context.accept_stop(None)
        if end.status != 0:
            last = self._errors.last_line() or self._output.last_line()
            raise failure_of(end, self._errors.text(), last, oom_killed=oom_killed)

    def _check_metrics(self, collector: Collector) -> None:
        """Raise CommandFailed if the command has not reported what is needed."""
        goal = self._command.goal
        if self._context.rank == 0 and goal and goal not in collector.metrics:
            last = [*self._output.last_lines(), *self._errors.last_lines()]
            raise nothing_reported(goal, collector, self._command.reports, last)


def _has_files(folder: Any) -> bool:
    with suppress(OSError):
        return any(folder.iterdir())
    return False


_FROM_OUTSIDE: Final = (signal.SIGKILL, signal.SIGTERM)
_SHELL: Final = 128  # and the number of a signal: a shell's exit status for it
_MEMORY_ERRORS: Final = (*MEMORY_WORDS, "memoryerror")
MAX_LINE: Final = 300


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
        message: str = "",
        shown_traceback: str = "",
        cause: Cause | None = None,
        exit_status: int | None = None,
    ) -> None:
        super().__init__(kind, message)
        self.shown_traceback = shown_traceback
        self.cause = cause
        self.exit_status = exit_status


def failure_of(end: End, errors: str, last_line: str, *, oom_killed: bool) -> CommandFailed:
    """The failure of a command that has ended with an error.

    Args:
        end: how it has ended.
        errors: the end of its standard error.
        last_line: that it has printed.
        oom_killed: whether the kernel has killed processes for memory meanwhile.
    """
    number = -end.status if end.status < 0 else end.status - _SHELL
    words = f"the command {end}"
    if number == signal.SIGKILL and oom_killed:
        message = f"the machine ran out of memory and its kernel killed the command: {words}"
        return CommandFailed("out_of_memory", message, errors, Cause.KILLED, end.status)
    if number in _FROM_OUTSIDE:
        return CommandFailed("preempted", f"{words} from outside", errors, Cause.KILLED, end.status)
    if last_line:
        words = f"{words}: {last_line[:MAX_LINE]}"
    if any(word in errors.lower() for word in DISK_WORDS):
        message = f"{NO_ROOM}: {words}"
        return CommandFailed("preempted", message, errors, Cause.DISK, end.status)
    about_memory = any(word in errors.lower() for word in _MEMORY_ERRORS)
    cause = Cause.SIGNALLED if end.status < 0 else Cause.EXITED
    kind = "out_of_memory" if about_memory else "crashed"
    return CommandFailed(kind, words, errors, cause, end.status)


def nothing_reported(
    goal: str, collector: Collector, patterns: Mapping[str, str], last_lines: Sequence[str]
) -> CommandFailed:
    """The failure of a command that has ended well, but has not reported the goal's metric.

    Args:
        last_lines: that it has printed.
    """
    found = ", ".join(sorted(collector.metrics)) or "none"
    words = f"the command reported no metric {goal!r}; these were reported: {found}"
    if goal in patterns:
        words += f"; no line of its output matches '{' '.join(patterns[goal].splitlines())}'"
        words += "; a CSV file is read by `reports: {file: metrics.csv}`"
    elif CSV_FILE in patterns:
        words += f"; no column of {patterns[CSV_FILE]} has that name, or the command wrote no row"
    else:
        words += f"; print '{goal} 0.5', write to AUTOML_REPORTS, or give a pattern: "
        words += f"reports.{goal}='REGEX'"
    if collector.complaint:
        words += f"; {collector.complaint}"
    words += f"; the last lines that it printed: {' | '.join(last_lines)}" if last_lines else ""
    return CommandFailed("missing_metric", words)
