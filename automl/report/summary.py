"""The summary in the terminal after a sweep: the result, a comparison, caveats, next commands."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.text import Text

from automl.core import Snapshot, Trial, TrialState, ranking, text
from automl.core.durations import duration
from automl.core.resuming import Typed, shell_line
from search_spaces import Space

from .caveats import caveats
from .confirmations import Confirmation
from .console import table
from .recommendation import recommended
from .record import Record

MAX_METRICS = 12
NOTHING = Typed()


def print_summary(
    console: Console,
    snapshot: Snapshot,
    space: Space,
    typed: Typed = NOTHING,
    confirmation: Confirmation | None = None,
) -> None:
    """Print the summary of a sweep that has ended or was interrupted.

    Args:
        space: the search space.
        typed: what the next commands repeat.
        confirmation: new runs of the best configurations, if there are any.
    """
    console.print()
    console.print(Text(_state(snapshot), style="bold"))
    for line in recommended_first(Record.of(snapshot, confirmation)):
        console.print(Text(line))
    console.print(Text(headline(snapshot)))
    if snapshot.best:
        console.print()
        console.print(comparison(snapshot, space))
    if len(snapshot.goals) > 1 and snapshot.best:
        console.print(pareto_table(snapshot))
    console.print()
    warnings = list(caveats(snapshot, space))
    for line in warnings:
        console.print(Text(line, style="yellow"))
    if warnings:
        console.print()
    for line in _next_commands(snapshot, typed):
        console.print(Text(line))


def recommended_first(record: Record) -> list[str]:
    """The recommendation beside the best single trial, if runs differ; else nothing."""
    advice = recommended(record) if record.snapshot.spec is not None else None
    return [] if advice is None else advice.lines(record.snapshot)


def comparison(snapshot: Snapshot, space: Space) -> RenderableType:
    """The best configuration and its metrics beside those of trial 0."""
    best, baseline = snapshot.best, snapshot.trials[0]
    assert best is not None, "a comparison needs a successful trial"
    header = [
        "",
        f"best (trial {best.number})",
        "default (trial 0)" if text.has_default(snapshot) else "trial 0",
        "change",
    ]
    params = list(compared_params(best, baseline, space))
    metrics = list(compared_metrics(snapshot, best, baseline))
    if best.number == 0:
        return table(header[:2], [row[:2] for row in [*params, *metrics]], right=header[1:2])
    return table(header, [*params, ("", "", "", ""), *metrics], right=header[1:])


def compared_params(best: Trial, baseline: Trial, space: Space) -> Iterator[tuple[str, ...]]:
    """Name and values of each parameter of two trials."""
    for name in space.parameters:
        if name in best.params or name in baseline.params:
            yield name, *(_value(trial, name) for trial in (best, baseline)), ""


def _value(trial: Trial, name: str) -> str:
    return text.number(trial.params[name]) if name in trial.params else "inactive"


def compared_metrics(snapshot: Snapshot, best: Trial, baseline: Trial) -> Iterator[tuple[str, ...]]:
    """Name, values and change of each metric of two trials: those of the goals first."""
    for index, goal in enumerate(snapshot.goals):
        ours, theirs = (text.goal_value(trial, snapshot, index) for trial in (best, baseline))
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
        cells = _cells(*values, show=partial(text.metric, name))
        yield label, *cells


def _cells(
    ours: float | None, theirs: float | None, show: Callable[[float], str] = text.number
) -> tuple[str, str, str]:
    """Two values, and the change from the second to the first."""
    change = ""
    if ours is not None and theirs is not None and ours != theirs:
        change = text.change(ours, theirs)
    shown = ("-" if value is None else show(value) for value in (ours, theirs))
    return *shown, change  # type: ignore[return-value]


def pareto_table(snapshot: Snapshot) -> RenderableType:
    """The trials of the Pareto front."""
    front = snapshot.pareto
    names = [goal.metric for goal in snapshot.goals]
    rows = []
    for trial in front:
        values = [text.goal_value(trial, snapshot, index) for index in range(len(names))]
        cells = ["-" if value is None else text.number(value) for value in values]
        rows.append([str(trial.number), *cells, text.configuration(trial.params)])
    title = Text(f"\nPareto front: {len(front)} configurations that no other dominates")
    return Group(title, table(["trial", *names, "configuration"], rows, right=["trial", *names]))


def _state(snapshot: Snapshot) -> str:
    trials = "1 trial" if len(snapshot.trials) == 1 else f"{len(snapshot.trials)} trials"
    if text.why_early(snapshot):
        trials = f"{len(snapshot.trials)} of {snapshot.budget.trials} trials"
    failed = snapshot.in_state(TrialState.FAILED) if snapshot.best is None else []
    said = failed and text.commonest_failure(failed)[1].message in snapshot.reason  # by `headline`
    shown = replace(snapshot, reason=snapshot.reason.partition(":")[0]) if said else snapshot
    state = f"{snapshot.sweep} {text.explained_state(shown)}"
    found = f"{state}: {trials} in {duration(snapshot.seconds)}"
    counts = text.failure_text(snapshot.trials)
    return f"{found}, {counts}" if counts else found


def headline(snapshot: Snapshot) -> str:
    """The best value beside the default's, in a sentence; or why there is none."""
    best, goal = snapshot.best, snapshot.goals[0]
    value = text.goal_value(best, snapshot) if best else None
    if best is None or value is None:
        return text.why_no_best(snapshot)
    found = f"Best {goal.metric}: {text.number(value)} in trial {best.number}"
    baseline = text.goal_value(snapshot.trials[0], snapshot)
    default = text.baseline_name(snapshot)
    if best.number == 0:
        which = ", the default" if text.has_default(snapshot) else ""
        return f"{found}{which}: no other trial was better."
    if baseline is None:
        return f"{found}; {default} failed."
    share = f" ({found_change})" if (found_change := text.change(value, baseline)) else ""
    return f"{found}, {value - baseline:+.4g}{share} against {default} ({text.number(baseline)})."


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
            commands["The best as JSON"] = f"automl best {name} --json"
        if snapshot.best and snapshot.spec and snapshot.spec.workload:
            commands["Train the best again"] = f"automl confirm {name}"
            commands["Export the trained model"] = f"automl export {name}"
    width = max(map(len, commands))
    return [f"{words + ':':<{width + 1}}  {typed}" for words, typed in commands.items()]
