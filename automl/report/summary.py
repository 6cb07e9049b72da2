"""The answer in the terminal: at the end of a sweep, and by `automl best`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console, RenderableType
from rich.text import Text

from automl.core import Snapshot, Trial, TrialState, ranking, text
from automl.core.arguments import duration
from automl.core.text import Typed, shell_line

from .answer import Answer, AnswerRow, answer, knee
from .recommendation import best_run
from .record import Confirmation, Record
from .terminal import table

MAX_METRICS = 12
MAX_FAILURES = 5
NOTHING = Typed()


def print_summary(
    console: Console,
    snapshot: Snapshot,
    typed: Typed = NOTHING,
    confirmation: Confirmation | None = None,
) -> None:
    """Print the summary of a sweep that has ended or was interrupted.

    Args:
        typed: what the next commands repeat.
        confirmation: new runs of the best configurations, if there are any.
    """
    console.print()
    console.print(Text(_state(snapshot), style="bold"))
    found = print_answer(console, Record.of(snapshot, confirmation))
    console.print()
    for line in found.caveats:
        console.print(Text(line, style="yellow"))
    if found.caveats:
        console.print()
    for line in _next_commands(snapshot, typed):
        console.print(Text(line))


def print_answer(console: Console, record: Record, *, more: bool = False) -> Answer:
    """Print the answer of a sweep, and return it.

    Args:
        more: what to try next, too.
    """
    found = answer(record)
    for i, line in enumerate(found.lines):
        console.print(Text(line, style="bold" if i == 0 and found.recommendation else ""))
    if found.luck:
        console.print(Text(found.luck, style="dim"))
    if found.rows:
        console.print()
        console.print(_picture(found.rows))
    if found.recommendation is not None:
        shown = best_run(record, found.recommendation)
        console.print()
        console.print(_metrics(record.snapshot, shown, record.trials[0]))
    if len(record.snapshot.goals) > 1 and record.snapshot.best:
        console.print(pareto_table(record))
    if record.confirmation:
        console.print(Text(f"\n{record.confirmation}"))
    for line in _ahead(found, more=more):
        console.print(Text(line))
    return found


def _ahead(found: Answer, *, more: bool) -> Iterator[str]:
    """What going on promises, what to try next, what failed."""
    if found.outlook or found.unknown:
        yield "\n" + "\n".join(str(one) for one in (found.unknown, found.outlook) if one)
    if more and found.next:
        yield "\nWhat to try next:"
        yield from (f"  {one}" for one in found.next)
    groups = found.failures if found.recommendation or len(found.failures) > 1 else ()
    if groups:
        yield "\nFailures:"
    for group in groups[:MAX_FAILURES]:
        yield f"  {group}"
        if group.cut:
            yield f"    to cut it off: {group.cut}"
    if (left := len(groups) - MAX_FAILURES) > 0:
        yield f"  and {left} more kinds"


def _picture(rows: Sequence[AnswerRow]) -> RenderableType:
    """A line for each parameter: what is recommended, its plateau, the way back."""
    cells = [[row.name, row.words, row.back] for row in rows]
    return table(["parameter", "recommended", "back to the default"], cells)


def _metrics(snapshot: Snapshot, best: Trial, baseline: Trial) -> RenderableType:
    """The metrics of a run of the recommended configuration beside those of trial 0."""
    default = "default (trial 0)" if text.has_default(snapshot) else "trial 0"
    header = ["measured once", f"trial {best.number}", default]
    rows = list(compared_metrics(snapshot, best, baseline))
    if best.number == 0:
        header, rows = header[:2], [row[:2] for row in rows]
    return table(header, rows, right=header[1:])


def compared_metrics(snapshot: Snapshot, best: Trial, baseline: Trial) -> Iterator[tuple[str, ...]]:
    """Name and values of each metric of two trials: those of the goals first."""
    for index, goal in enumerate(snapshot.goals):
        ours, theirs = (snapshot.value(trial, index) for trial in (best, baseline))
        last = best.metrics.get(goal.metric), baseline.metrics.get(goal.metric)
        peaked = ours != last[0] or theirs not in (None, last[1])  # infeasible: no value counts
        label = f"{goal.metric} (best report)" if peaked else goal.metric
        if not peaked and best.reports.first(goal.metric) is not None:
            label = f"{goal.metric} ({ranking.origin(best, goal, snapshot.constraints)})"
        yield label, *(_cells(ours, theirs) if peaked else _cells(*last))
        if peaked:  # the goal takes the best report, `metrics` holds the last
            yield f"{goal.metric} (last report)", *_cells(*last)
    goals = {goal.metric for goal in snapshot.goals}
    others = [name for name in best.metrics if name not in goals]
    for name in others[: MAX_METRICS - len(goals)]:
        label = f"{name} (reported)" if name in best.params else name
        values = best.metrics[name], baseline.metrics.get(name)
        yield label, *_cells(*values, show=partial(text.metric, name))


def _cells(
    ours: float | None, theirs: float | None, show: Callable[[float], str] = text.number
) -> tuple[str, ...]:
    return tuple("-" if value is None else show(value) for value in (ours, theirs))


def pareto_table(record: Record) -> RenderableType:
    """The trials of the Pareto front, by the first goal; the knee and the default are marked."""
    snapshot = record.snapshot
    front = sorted(snapshot.pareto, key=lambda t: snapshot.goals[0].loss(snapshot.value(t) or 0.0))
    middle, names = knee(snapshot, front), [goal.metric for goal in snapshot.goals]
    rows = []
    for trial in front if snapshot.trials[0] in front else [*front, snapshot.trials[0]]:
        values = [snapshot.value(trial, index) for index in range(len(names))]
        cells = ["-" if value is None else text.number(value) for value in values]
        marks = ["knee"] * (trial.number == middle) + ["default"] * (trial.number == 0)
        name = " ".join([str(trial.number), *marks])
        rows.append([name, *cells, text.configuration(trial.params)])
    title = f"front of {len(front)}"
    return table([title, *names, "configuration"], rows, right=names)


def _state(snapshot: Snapshot) -> str:
    trials = "1 trial" if len(snapshot.trials) == 1 else f"{len(snapshot.trials)} trials"
    if text.why_early(snapshot):
        trials = f"{len(snapshot.trials)} of {snapshot.budget.trials} trials"
    failed = snapshot.in_state(TrialState.FAILED) if snapshot.best is None else []
    said = failed and text.commonest_failure(failed)[1].message in snapshot.reason
    shown = replace(snapshot, reason=snapshot.reason.partition(":")[0]) if said else snapshot
    state = f"{snapshot.sweep} {text.explained_state(shown)}"
    found = f"{state}: {trials} in {duration(snapshot.seconds)}"
    counts = text.failure_text(snapshot.trials)
    return f"{found}, {counts}" if counts else found


def _next_commands(snapshot: Snapshot, typed: Typed) -> list[str]:
    name = shell_line([snapshot.sweep, *typed.location])
    if snapshot.state == "interrupted":
        again = typed.line(snapshot.spec) if snapshot.spec else f"automl resume {name}"
        commands = {"Resume it": again, "List its trials": f"automl trials {name}"}
    else:
        commands = {
            "List all trials": f"automl trials {name}",
            "Report with figures": f"automl report {name}",
        }
        if snapshot.best:
            commands["This answer again"] = f"automl best {name}"
        if snapshot.best and snapshot.spec and snapshot.spec.workload:
            commands["Train the best again"] = f"automl confirm {name}"
            commands["Export the trained model"] = f"automl export {name}"
    width = max(map(len, commands))
    return [f"{words + ':':<{width + 1}}  {typed}" for words, typed in commands.items()]
