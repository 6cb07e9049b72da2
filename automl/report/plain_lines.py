"""The lines that show a running sweep where there is no terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import IO, Any, Final

from automl.core import Noted, Snapshot, Trial, TrialState, text
from automl.core.durations import duration
from automl.core.events import GRACE_SECONDS
from automl.core.standings import Standings

STATUS_SECONDS: Final = 60.0


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
        self.standings = Standings()
        self.next_status = STATUS_SECONDS
        self.dashboard = ""
        self.waited = False  # for another sweep
        self.how = ""  # how running trials end
        self.errors: set[str] = set()  # of which the traceback was printed

    def __call__(self, snapshot: Snapshot) -> None:
        """Print what is new."""
        if snapshot.dashboard and not self.dashboard:
            self._line(snapshot, f"Ray dashboard: {snapshot.dashboard}")
        self.dashboard = snapshot.dashboard
        if snapshot.waits_for and not self.waited:
            self.waited = True
            self._line(snapshot, snapshot.waits_for)
        waiting = len(snapshot.in_state(TrialState.RUNNING))
        for event in snapshot.events if waiting else ():
            if isinstance(event, Noted) and event.kind == "end":
                how = f"ends them after {duration(GRACE_SECONDS)}"
                if event.message == "interrupted":
                    how = "once more ends them at once"
                why = event.message.partition(":")[0]
                if how != self.how:
                    self._line(snapshot, f"{why}: waits for running trials: {waiting}; {how}")
                self.how = how
        is_first = not self.standings.values and not snapshot.events
        self.standings.follow(snapshot)
        for trial, state in snapshot.transitions:
            if self.starts or state not in (TrialState.RUNNING, TrialState.PAUSED):
                self._print_trial(snapshot, trial, state)
        is_due = snapshot.seconds >= self.next_status and snapshot.state == "running"
        if is_due or (is_first and snapshot.trials):
            self.next_status = snapshot.seconds + STATUS_SECONDS
            counts = text.outcomes(snapshot, self.standings.counts())
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
        if trial.traceback and trial.message not in self.errors:
            self.errors.add(trial.message)
            traceback = text.printable(trial.traceback, keep="\n\t")
            self.console.print(traceback, markup=False, soft_wrap=True, end="")

    def _result(self, snapshot: Snapshot, trial: Trial) -> list[str]:
        if trial.failure:
            return [trial.failure.replace("_", " ")]
        goal, value = snapshot.goals[0], text.goal_value(trial, snapshot)
        if value is None:
            return [text.violation(trial, snapshot) or f"no {goal.metric}"]
        found = [f"{goal.metric} {text.number(value)}", f"in {duration(trial.seconds)}"]
        if self.standings.best() == trial.number:
            found.append("best so far")
        return found

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
