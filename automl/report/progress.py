"""The progress of a sweep that Python runs: a terminal view, lines, or the output of a cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final

from automl.core import Begun, Ended, Moved, Noted, Snapshot, Trial, TrialState, text
from automl.core.arguments import duration
from automl.core.events import GRACE_SECONDS

if TYPE_CHECKING:
    from automl.ledger.ledger import SweepInfo

    from .terminal import Show

EVERY_SECONDS: Final = 1.0
STATUS_SECONDS: Final = 60.0


@contextmanager
def progress(wanted: bool | None = None) -> Iterator[Show | None]:
    """A function that shows each new snapshot; None to show nothing.

    Args:
        wanted: whether to show progress; None for yes: in a notebook in its cell, else on standard
            error, as a view in a terminal or a line a trial.
    """
    if wanted is False:
        yield None
    elif in_notebook():
        yield NotebookOutput()
    elif sys.stderr is None:  # a program without a console
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console

        from .terminal import view

        with view(Console(stderr=True, highlight=False)) as show:
            yield show
    else:
        yield PlainLines(Stream(sys.stderr), starts=False)


def say(lines: Iterable[str]) -> None:
    """Say these lines on standard error."""
    for line in lines:
        print(f"automl: {line}", file=sys.stderr)


def say_which(wanted: str, name: str, num_trials: int) -> None:
    """Say, on standard error, if a sweep gets another name or goes on with earlier trials.

    Args:
        wanted: the name that was asked for.
        name: of the sweep.
        num_trials: that it has already.
    """
    if name != wanted:
        line = f"there is a sweep {wanted!r} already: this one is {name!r}; to go on with an "
        line += "earlier one, give its name= and resume=True"
    elif num_trials:
        line = f"going on with the sweep {name!r}, which has trials: {num_trials}"
    else:
        return
    say([line])


def say_why(snapshot: Snapshot, before: SweepInfo | None = None) -> None:
    """Say, on standard error, why a sweep has ended early or had no trial to run, or no success.

    Args:
        before: the sweep of the name that was asked for, as it was; None if there was none.
    """
    known = () if before is None else (before.name, before.state, before.num_trials)
    if early := text.why_early(snapshot):
        say([text.printable(early)])
    elif snapshot.state == "finished" and snapshot.best is None:
        say([text.printable(text.why_no_best(snapshot), keep="\n")])
    elif known == (snapshot.sweep, "finished", num := len(snapshot.trials)):
        more = "budget=" if snapshot.budget.trials is None else f"trials={2 * num}"
        say(
            [
                f"no trial was left to run: the sweep {snapshot.sweep!r} has {num} trials, and "
                f"{snapshot.reason}. To go on, pass more, such as {more}"
            ]
        )


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookOutput:
    """Draws the sweep into the output of its notebook cell: its state, and its page at the end."""

    def __init__(self) -> None:
        self._places: dict[str, Any] = {}
        self._next = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        """Draw the snapshot."""
        running = snapshot.state == "running"
        if time.monotonic() < self._next and running:
            return
        from .page import frame, state_card

        self._show("answer", state_card(snapshot))
        if not running:
            self._show("figures", frame(snapshot))
        self._next = time.monotonic() + EVERY_SECONDS

    def _show(self, place: str, content: str) -> None:
        from IPython.display import DisplayHandle

        drawn = {"text/html": content}  # `HTML` warns of frames, whatever they show
        if place in self._places:
            self._places[place].update(drawn, raw=True)
        else:
            self._places[place] = DisplayHandle()  # type: ignore[no-untyped-call]
            self._places[place].display(drawn, raw=True)


class Stream:
    """Prints to a file of text as a console does; to import rich would delay the first trial."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def print(self, line: str, *, end: str = "\n", **style: Any) -> None:
        """Print a line at once; a stream that is closed loses it."""
        with suppress(OSError, ValueError):
            self._file.write(f"{line}{end}")
            self._file.flush()


class PlainLines:
    """Prints a line for each trial that starts or ends, and for the sweep every minute.

    Args:
        out: prints lines: a console of rich, or a `Stream`.
        starts: whether the start of a trial has a line too. If not, its end has the configuration.
    """

    def __init__(self, out: Any, *, starts: bool = True) -> None:
        self.console = out
        self.starts = starts
        self.begun = False
        self.next_status = STATUS_SECONDS
        self.said: set[str] = set()  # lines and errors that are said once

    def __call__(self, snapshot: Snapshot) -> None:
        """Print what is new."""
        if snapshot.dashboard:
            self._once(snapshot, f"Ray dashboard: {snapshot.dashboard}")
        waiting = len(snapshot.in_state(TrialState.RUNNING))
        for event in snapshot.events if waiting else ():
            if isinstance(event, Noted) and event.kind == "end":
                why = event.message.partition(":")[0]
                how = f"ends them after {duration(GRACE_SECONDS)}"
                if event.message == "interrupted":
                    how = "once more ends them at once"
                self._once(snapshot, how, f"{why}: waits for running trials: {waiting}; {how}")
        if snapshot.suggesting == "suggesting" and snapshot.num_slots and not waiting:
            self._once(snapshot, "waits for a suggestion; the first one of a model takes seconds")
        is_first = not self.begun and not snapshot.events
        self.begun = self.begun or bool(snapshot.trials)
        for event in snapshot.events:
            if isinstance(event, Begun | Ended | Moved):
                state = TrialState.RUNNING if isinstance(event, Begun) else event.state
                if self.starts or state not in (TrialState.RUNNING, TrialState.PAUSED):
                    self._print_trial(snapshot, snapshot.trials[event.trial], state)
        is_due = snapshot.seconds >= self.next_status and snapshot.state == "running"
        if is_due or (is_first and snapshot.trials):
            self.next_status = snapshot.seconds + STATUS_SECONDS
            counts = text.outcomes(snapshot, snapshot.counts())
            self._line(snapshot, " - ".join([budget_text(snapshot), *counts]))

    def _print_trial(self, snapshot: Snapshot, trial: Trial, state: TrialState) -> None:
        words = [f"trial {trial.number} {state}"]
        if state.finished:
            words += self._result(snapshot, trial)
        if state is TrialState.RUNNING:
            words.append(text.again(trial) + text.configuration(trial.params))
        elif trial.message:
            words.append(f"({trial.message.splitlines()[0]})")
        if state.finished and not self.starts:
            words.append(text.again(trial) + text.configuration(trial.params))
        self._line(snapshot, "  ".join(words))
        if trial.traceback and trial.message not in self.said:
            self.said.add(trial.message)
            traceback = text.printable(trial.traceback, keep="\n\t")
            self.console.print(traceback, markup=False, soft_wrap=True, end="")

    def _result(self, snapshot: Snapshot, trial: Trial) -> list[str]:
        if trial.failure:
            return [trial.failure.replace("_", " ")]
        goal, value = snapshot.goals[0], snapshot.value(trial)
        if value is None:
            return [text.violation(trial, snapshot) or f"no {goal.metric}"]
        found = [f"{goal.metric} {text.number(value)}", f"in {duration(trial.seconds)}"]
        if snapshot.best is trial:
            found.append("best so far")
        return found

    def _once(self, snapshot: Snapshot, key: str, line: str = "") -> None:
        if key and key not in self.said:
            self.said.add(key)
            self._line(snapshot, line or key)

    def _line(self, snapshot: Snapshot, line: str) -> None:
        self.console.print(
            f"[{duration(snapshot.seconds):>7}] {text.printable(line)}",
            markup=False,
            soft_wrap=True,
        )


def budget_text(snapshot: Snapshot) -> str:
    """How much of the budget is used: only trials that have ended count."""
    budget = snapshot.budget
    ended = sum(trial.state.finished for trial in snapshot.trials)
    trials = f"{ended} of {budget.trials}" if budget.trials else str(ended)
    time_text = duration(snapshot.seconds)
    if budget.time:
        time_text += f" of {duration(budget.time)}"
    return f"{trials} trials done, {time_text}"
