"""The progress of a sweep that Python runs: a terminal view, lines, or the output of a cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from automl.core import Snapshot, text

if TYPE_CHECKING:
    from automl.ledger.reader import SweepInfo

    from .terminal_view import Show

EVERY_SECONDS: Final = 1.0
GROWTH: Final = 1.3  # figures are drawn again at this factor of ended trials
MIN_TRIALS: Final = 4  # that are new, too


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

        from .terminal_view import view

        with view(Console(stderr=True, highlight=False)) as show:
            yield show
    else:
        from .plain_lines import PlainLines, Stream

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
    """Draws the sweep into the output of its notebook cell, at most once a second.

    The figures are drawn again only if the trials have grown, because each drawing ends what a
    person has selected in them.
    """

    def __init__(self) -> None:
        self._places: dict[str, Any] = {}
        self._next = 0.0
        self._drawn = 0  # trials that the figures show

    def __call__(self, snapshot: Snapshot) -> None:
        """Draw the snapshot."""
        running = snapshot.state == "running"
        if time.monotonic() < self._next and running:
            return
        from .notebook import answer, frame

        self._show("answer", answer(snapshot))
        ended = sum(trial.state.finished for trial in snapshot.trials)
        if ended >= self._drawn * GROWTH + MIN_TRIALS or (not running and ended > self._drawn):
            self._show("figures", frame(snapshot))
            self._drawn = ended
        self._next = time.monotonic() + EVERY_SECONDS

    def _show(self, place: str, content: str) -> None:
        from IPython.display import DisplayHandle

        drawn = {"text/html": content}  # `HTML` warns of frames, whatever they show
        if place in self._places:
            self._places[place].update(drawn, raw=True)
        else:
            self._places[place] = DisplayHandle()  # type: ignore[no-untyped-call]
            self._places[place].display(drawn, raw=True)
