"""The terminal: a console, tables, and the view of a running sweep.

The view is a screen in a terminal, and plain lines elsewhere.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderHook, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from automl.core import Snapshot, Trial, TrialState, text
from automl.core.arguments import duration
from automl.core.text import printable

from .progress import PlainLines, budget_text

WIDE = 200  # columns without a terminal
REFRESH_SECONDS = 0.25
MAX_WIDTH = 160
STYLES = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "stopped": "yellow",
    "paused": "magenta",
}
SWEEP_STYLES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "failed": "red"}

Show = Callable[[Snapshot], None]


def console(*, width: int = WIDE) -> Console:
    """A console for standard output; without a terminal it is plain and `width` columns wide."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    found = Console(width=None if known else width, highlight=False)
    found.push_render_hook(_EscapeAll())
    return found


@dataclass(frozen=True)
class Escaped:
    """Something to draw, with the control characters of its texts escaped."""

    drawn: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it; what rich itself sends to move the cursor stays."""
        for segment in console.render(self.drawn, options):
            drawn = segment.text if segment.control else printable(segment.text, keep="\n")
            yield Segment(drawn, segment.style, segment.control)


class _EscapeAll(RenderHook):
    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        return [Escaped(one) for one in renderables]


def table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Sequence[str] = ()
) -> Table:
    """A table without rules; its last column is cut if there is no room.

    Args:
        right: columns to align right.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_one_line(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        found = [row[index] for row in cells]
        width = max((one.cell_len for one in found if isinstance(one, Text)), default=0)
        last = index == len(columns) - 1
        made.add_column(
            printable(column),
            justify="right" if column in right else "left",
            no_wrap=not last,  # rich narrows only columns that may wrap
            min_width=None if last else max(width, len(column)),
        )
    for row in cells:
        made.add_row(*row)
    return made


def _one_line(cell: RenderableType) -> RenderableType:
    line = Text(cell) if isinstance(cell, str) else cell
    if isinstance(line, Text):
        if (plain := printable(line.plain)) != line.plain:
            line = Text(plain, line.style)
        line.no_wrap, line.overflow = True, "ellipsis"
    return line


@dataclass(frozen=True)
class SweepView:
    """A sweep at one moment, in at most `height` lines."""

    snapshot: Snapshot
    height: int = 24

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the parts from top to bottom, as rich asks for it."""
        width = min(options.max_width, MAX_WIDTH)
        state = (text.sweep_state(self.snapshot), SWEEP_STYLES.get(self.snapshot.state, ""))
        name = Text.assemble((self.snapshot.sweep, "bold"), "  ", state)
        yield _apart(name, Text(_left_text(self.snapshot), style="dim"), width)
        yield _progress(self.snapshot, width)
        yield Text(_reason(self.snapshot))
        yield from _best(self.snapshot, width)
        yield Text()
        footer = [*_error(self.snapshot, self.height), *_footer(self.snapshot)]
        num_rows = max(self.height - 8 - len(footer), 3)
        yield _trials(self.snapshot, num_rows)
        yield Text()
        yield from footer


@contextmanager
def view(given: Console | None = None) -> Iterator[Show]:
    """A function that shows each new snapshot: on a screen in a terminal, in lines elsewhere."""
    out = given or console()
    if not out.is_terminal:
        yield PlainLines(out)
        return
    with Live(console=out, auto_refresh=False, vertical_overflow="crop") as live:
        yield _Screen(live, out)


class _Screen:
    """Redraws at most four times a second, and less often if drawing is slow."""

    def __init__(self, live: Live, console: Console) -> None:
        self.live = live
        self.console = console
        self.next_time = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        begin = time.monotonic()
        if begin < self.next_time and snapshot.state == "running":
            return
        self.live.update(Escaped(SweepView(snapshot, self.console.height - 1)), refresh=True)
        end = time.monotonic()
        self.next_time = end + max(REFRESH_SECONDS, 20 * (end - begin))


def state_lines(snapshot: Snapshot, counts: Mapping[str, int]) -> list[str]:
    """The state of the sweep, in a few lines of text.

    Args:
        counts: of outcomes.
    """
    counted = text.outcomes(snapshot, counts)
    words = [text.explained_state(snapshot), budget_text(snapshot), *counted]
    left = _left_text(snapshot)
    return [
        ", ".join([*words, left] if left else words),
        ", ".join([*_workers(snapshot), f"suggestions {_suggesting(snapshot)}"]),
        *_outlook(snapshot),
    ]


def _outlook(snapshot: Snapshot) -> list[str]:
    """What going on promises, in a line of text; none while it is not known."""
    if snapshot.gain is None or snapshot.error is None:
        return []
    advice = ": you may stop" if snapshot.gain < snapshot.error else ""
    return [
        f"going on gains {snapshot.gain:.2g} at most, the best is known to "
        f"{snapshot.error:.2g}{advice}"
    ]


def _workers(snapshot: Snapshot) -> list[str]:
    """How many workers are busy; none are known while Ray starts, which takes seconds."""
    if snapshot.num_slots:
        return [f"workers {snapshot.busy_slots} of {snapshot.num_slots} busy"]
    return ["workers are starting"] * (snapshot.state == "running")


# The parts of the view, from top to bottom


def _reason(snapshot: Snapshot) -> str:
    """Why it is in its state, or how it goes on."""
    if text.sweep_state(snapshot) == "interrupted":
        return f"automl resume {snapshot.sweep} goes on with it"
    return "" if snapshot.reason == snapshot.state else snapshot.reason


def _progress(snapshot: Snapshot, width: int) -> RenderableType:
    right = Text(budget_text(snapshot))
    bar = max(width - right.cell_len - 2, 0)
    row = Table.grid(padding=(0, 2, 0, 0))
    share = snapshot.share
    row.add_row(
        ProgressBar(total=1.0, completed=share, width=bar) if share is not None else Text(), right
    )
    return row


def _best(snapshot: Snapshot, width: int) -> list[RenderableType]:
    best, goal = snapshot.best, snapshot.goals[0]
    if best is None:
        return [Text(f"no {goal.metric} yet", style="dim"), Text()]
    value = snapshot.value(best)
    words = Text.assemble(
        "best  ", (f"{goal.metric} {text.number(value)}", "bold green"), f"  trial {best.number}"
    )
    if len(snapshot.goals) > 1:
        words.append(f"  {len(snapshot.pareto)} on the Pareto front", style="dim")
    room = width - words.cell_len - 2
    spark = text.sparkline(snapshot.trajectory(), min(room, width // 3), maximize=goal.maximize)
    params = Text("      " + text.configuration(best.params), no_wrap=True, overflow="ellipsis")
    return [_apart(words, Text(spark, style="green"), width), params]


def _trials(snapshot: Snapshot, num_rows: int) -> RenderableType:
    """The running trials, then the latest to end."""
    running = snapshot.in_state(TrialState.RUNNING)
    others = [
        t
        for t in snapshot.trials
        if t.state is not TrialState.RUNNING and t.state is not TrialState.WAITING
    ]
    others.sort(key=lambda trial: (trial.ended or 0.0, trial.number), reverse=True)
    shown = [*running[: max(num_rows - 2, 1)], *others]
    best = snapshot.best
    default = snapshot.trials[0].params if text.has_default(snapshot) else {}
    goal = snapshot.goals[0].metric
    if left := max(len(shown) - num_rows, 0):
        num_rows, left = num_rows - 1, left + 1
    rows = [_row(snapshot, trial, default, best) for trial in shown[:num_rows]]
    if left:
        rows.append(("", Text(f"+{left} more", style="dim"), "", "", ""))
    return table(
        [
            "trial",
            "state",
            goal[:16],
            "time",
            "changed from the default" if default else "configuration",
        ],
        rows,
        right=["trial", goal[:16], "time"],
    )


def _row(
    snapshot: Snapshot, trial: Trial, default: Mapping[str, Any], best: Trial | None
) -> tuple[RenderableType, ...]:
    value = snapshot.value(trial)
    state = text.state_of(trial, snapshot)
    if state == "running" and trial.reports:
        state = f"step {trial.reports[-1].step}"
    is_best = best is not None and best.number == trial.number
    changed = {name: value for name, value in trial.params.items() if default.get(name) != value}
    return (
        Text(str(trial.number), style="bold green" if is_best else ""),
        Text(state, style=STYLES.get(str(trial.state), "")),
        Text("-" if value is None else text.number(value), style="bold green" if is_best else ""),
        Text(duration(_seconds(snapshot, trial))),
        Text(text.again(trial) + (text.configuration(changed) or "the default"), style="dim"),
    )


def _seconds(snapshot: Snapshot, trial: Trial) -> float:
    if trial.state is TrialState.RUNNING and trial.started is not None and trial.attempts <= 1:
        return max(snapshot.seconds - trial.started, 0.0)
    return trial.seconds


def _error(snapshot: Snapshot, height: int) -> list[RenderableType]:
    """The first exception of the objective, until a trial succeeds; then only its message."""
    raised = [trial for trial in snapshot.trials if trial.failure and trial.traceback]
    if not raised:
        return []
    first = raised[0]
    title = Text(f"trial {first.number}: {first.message}", style="red", no_wrap=True)
    title.overflow = "ellipsis"
    if snapshot.best is not None:
        return [title]
    frames = first.traceback.rstrip().splitlines()[1:-1][-max(height // 3, 2) :]
    return [title, *(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in frames)]


def _footer(snapshot: Snapshot) -> list[RenderableType]:
    outcomes = text.outcomes(snapshot, snapshot.counts())
    numbers = Text("   ".join(outcomes) or "no trial has ended yet")
    if snapshot.state != "running":
        return [numbers]
    words = _workers(snapshot)
    recent = list(snapshot.suggestion_seconds)[-10:]
    each = f", {sum(recent) / len(recent):.2g} s each" if recent else ""
    words.append(f"suggestions {_suggesting(snapshot)}{each}")
    if snapshot.dashboard:
        words.append(snapshot.dashboard)
    lines = ["   ".join(words), *_outlook(snapshot)]
    return [numbers, *(Text(line, style="dim") for line in lines)]


def _suggesting(snapshot: Snapshot) -> str:
    return "being made" if snapshot.suggesting == "suggesting" else snapshot.suggesting


def _left_text(snapshot: Snapshot) -> str:
    """`about 4m 48s left`, if the sweep goes on at its pace so far."""
    share = snapshot.share
    if snapshot.state != "running" or share is None or share <= 0:
        return ""
    return f"about {duration(snapshot.seconds * (1 - share) / share)} left"


def _apart(left: Text, right: Text, width: int) -> RenderableType:
    """Two texts at the ends of one line."""
    gap = max(width - left.cell_len - right.cell_len, 1)
    return Text.assemble(left, " " * gap, right, no_wrap=True, overflow="ellipsis")
