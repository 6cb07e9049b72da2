"""The verbs that look at sweeps. They load neither torch nor Ray."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import click

from automl.core import Noted, Snapshot, Trial, TrialState, ranking
from automl.core.arguments import duration
from automl.core.garbage import no_collection
from automl.core.spec import KEYS, SweepSpec
from automl.core.text import (
    again,
    configuration,
    configurations,
    goal_value,
    memory,
    number,
    printable,
    state_of,
    why_no_best,
)
from automl.errors import AutomlError, UsageError
from workers.command.output import COLOURS
from workers.protocol import LOGS, log_name

from . import NO_SUCCESS
from .common import (
    draw,
    draw_table,
    emit,
    json_option,
    newest_argument,
    newest_sweep,
    reads_store,
    say,
    whole,
)

if TYPE_CHECKING:
    from automl.ledger import Ledger
    from automl.report.confirmations import Confirmation
    from automl.report.recommendation import Recommendation

_COLOURS: Final = re.compile(COLOURS)
BEST_SECONDS: Final = 0.3  # of a list, for the best values


@click.command()
@newest_argument
@reads_store
@json_option
@no_collection()  # it would scan every trial again and again
def status(ledger: Ledger, sweep: str, as_json: bool) -> None:
    """Show the progress of a sweep, also while it runs.

    \b
    Examples:
      automl status nmt
      automl status nmt --json
    """
    snapshot = ledger.snapshot(sweep)
    if as_json:
        return emit(status_object(snapshot))
    from automl.report.terminal_view import SweepView

    draw(SweepView(snapshot, height=24), width=100)
    if snapshot.spec is None:
        return None
    say(_settings(snapshot.spec))
    if snapshot.spec.explored is not None:
        for event in ledger.events(sweep):
            if isinstance(event, Noted) and event.kind == "space":
                say(f"the space was changed: {event.message}")
    return None


def _settings(spec: SweepSpec) -> str:
    """How a sweep searches and where it runs, also as far as it was not said: in a line."""
    options = {"suggester": spec.suggester_options, "stopper": spec.stopper_options}
    plugins = [
        "  ".join(filter(None, [f"{kind} {getattr(spec, kind)}", configuration(found)]))
        for kind, found in options.items()
    ]
    workers = KEYS["workers"].words if spec.worker_range is None else str(spec.worker_range)
    where = f"workers {workers}" + (f", {spec.dispatcher}" if spec.dispatcher else "")
    return "; ".join([*map(str, spec.goals), *plugins, where, f"seed {spec.seed}"])


def status_object(snapshot: Snapshot) -> dict[str, object]:
    """The JSON object of `automl status`; what the next trial promises, once that is known."""
    best = snapshot.best
    promised = {"expected_gain": snapshot.gain, "recommendation_error": snapshot.error}
    return {
        "sweep": snapshot.sweep,
        "state": snapshot.state,
        "num_trials": len(snapshot.trials),
        "num_completed": len(snapshot.in_state(TrialState.COMPLETED)),
        "num_failed": len(snapshot.in_state(TrialState.FAILED)),
        "best": _trial_object(snapshot, best) if best else None,
        "seconds": snapshot.seconds,
        "workers": snapshot.num_slots,
        **{name: value for name, value in promised.items() if value is not None},
    }


@click.command()
@newest_argument
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    metavar="FLOAT",
    help="Seconds between updates.",
)
@reads_store
def watch(ledger: Ledger, sweep: str, interval: float) -> None:
    """Watch a running sweep from another terminal. Ctrl-C ends the view, not the sweep.

    \b
    Example:
      automl watch nmt
    """
    from automl.report.terminal_view import view

    follower = ledger.follow(sweep)
    with view() as show:
        try:
            while True:
                follower.refresh()
                show(snapshot := follower.snapshot())
                if snapshot.state != "running":
                    return
                time.sleep(interval)
        except KeyboardInterrupt:
            return


@click.command()
@newest_argument
@reads_store
@json_option
@no_collection()
def trials(ledger: Ledger, sweep: str, as_json: bool) -> None:
    """List the trials of a sweep with their configurations and metrics.

    \b
    Examples:
      automl trials nmt
      automl trials nmt --json | jq '.[] | select(.failure)'
    """
    snapshot = ledger.snapshot(sweep)
    if as_json:
        return emit([trial.summary() for trial in snapshot.trials])
    goals = [goal.metric for goal in snapshot.goals]
    best = snapshot.best.number if snapshot.best else None
    rows = []
    lines = configurations([trial.params for trial in snapshot.trials])
    for trial, line in zip(snapshot.trials, lines, strict=True):
        values = [goal_value(trial, snapshot, index) for index in range(len(goals))]
        name = f"{trial.number}{'*' if trial.number == best else ' '}"
        cells = ["-" if value is None else number(value) for value in values]
        measured = [duration(trial.seconds), memory(trial.peak_memory_bytes)]
        rows.append([name, state_of(trial, snapshot), *cells, *measured, again(trial) + line])
    columns = ["trial", "state", *goals, "time", "memory", "configuration"]
    draw_table(columns, rows, ["trial", *goals, "time", "memory"])
    if best is not None:
        from rich.text import Text

        draw(Text(f"* the best by {snapshot.goals[0]}", style="dim"))
    return None


@click.command()
@newest_argument
@reads_store
@json_option
@no_collection()
def best(ledger: Ledger, sweep: str, as_json: bool) -> int | None:
    """Show the best configuration beside the default one.

    A trial's value (`value` in the JSON) is what it has returned; if it has only reported, its best
    report, or the last one if the goal ends in "at the end". `metrics` are those of its last report
    and of what it returned.

    If a model of all trials expects more of another configuration, it is named first. `recommended`
    in the JSON is that configuration, its expected value and an interval that holds it with 90%
    probability.

    \b
    Examples:
      automl best nmt
      automl best nmt --json | jq .params
    """
    from automl.report.confirmations import read
    from automl.report.record import Record

    snapshot = ledger.snapshot(sweep)
    confirmation = read(ledger, snapshot)
    if snapshot.best is None:
        message = f"{sweep}: {why_no_best(snapshot)}"
        if snapshot.state == "running":
            raise AutomlError(f"{message}\nThe sweep still runs.")
        say(f"{message}\nSee automl trials {sweep}", err=True)
        return NO_SUCCESS
    record = Record.of(snapshot, confirmation)
    if as_json:
        from automl.report.recommendation import recommended

        advice = recommended(record)
        assert advice is not None, "there is a successful trial"
        emit(_best_object(snapshot, snapshot.best, advice, confirmation))
        return None
    from automl.report.console import console
    from automl.report.summary import print_answer

    print_answer(console(), record, more=True)
    return None


def _best_object(
    snapshot: Snapshot,
    trial: Trial,
    advice: Recommendation,
    confirmation: Confirmation | None,
) -> dict[str, Any]:
    """The JSON object of `automl best`, with all its fields."""
    default = snapshot.trials[0]
    pareto = [one.summary() for one in snapshot.pareto] if len(snapshot.goals) > 1 else None
    return {
        **_trial_object(snapshot, trial),
        "sweep": snapshot.sweep,
        "goals": [str(goal) for goal in snapshot.goals],
        "goal_values": _goal_values(snapshot, trial),
        "baseline": default.summary(),
        "baseline_goal_values": _goal_values(snapshot, default),
        **({} if pareto is None else {"pareto": pareto}),
        "recommended": advice.to_dict(),
        **({} if confirmation is None else {"confirmation": confirmation.to_dict()}),
    }


def _trial_object(snapshot: Snapshot, trial: Trial) -> dict[str, Any]:
    """The JSON object of a trial; `value` is what the first goal compares, null if it has none."""
    (valued,) = ranking.valued([trial], snapshot.goals, snapshot.constraints, snapshot.spec)
    return {**valued.summary(), "value": valued.value, "value_from": valued.value_from}


def _goal_values(snapshot: Snapshot, trial: Trial) -> dict[str, float | None]:
    """Value of a trial for each goal, as trials are ranked (`metrics` are the last report)."""
    return {
        goal.metric: goal_value(trial, snapshot, index) for index, goal in enumerate(snapshot.goals)
    }


@click.command("list")
@reads_store
@json_option
def list_sweeps(ledger: Ledger, as_json: bool) -> None:
    """List the sweeps of a store, the newest one last.

    \b
    Examples:
      automl list
      automl list --store postgresql://host/runs --json
    """
    sweeps = ledger.sweeps()
    if as_json:
        return emit([info.line() for info in sweeps])
    if not sweeps:
        return say("no sweeps yet; start one with: automl sweep CONFIG")
    until = time.monotonic() + BEST_SECONDS
    best = {  # of the newest sweeps, as many as can be read at once
        info.name: _best_value(ledger.snapshot(info.name))
        for info in reversed(sweeps)
        if time.monotonic() < until
    }
    rows = [
        [
            info.name,
            info.state,
            str(info.num_trials),
            best.get(info.name, "..."),
            duration(info.seconds),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(info.created)),
        ]
        for info in sweeps
    ]
    columns = ["sweep", "state", "trials", "best", "time", "created"]
    return draw_table(columns, rows, ["trials", "time"])


def _best_value(snapshot: Snapshot) -> str:
    value = goal_value(snapshot.best, snapshot) if snapshot.best else None
    return "-" if value is None else f"{snapshot.goals[0].metric} {number(value)}"


@click.command()
@newest_argument
@click.argument("trial", required=False, type=whole(0))
@click.option(
    "--rank",
    type=whole(0),
    default=0,
    show_default=True,
    help="Rank of a trial that has several.",
)
@click.option(
    "--attempt", type=whole(1), help="Attempt of a trial that was retried.  [default: the last]"
)
@reads_store
def logs(ledger: Ledger, sweep: str, trial: int | None, rank: int, attempt: int | None) -> None:
    """Show what one rank of a trial has printed, and the traceback if it raised an exception.

    A trial that ran inline has printed to the terminal of its sweep.

    Colours are left out, and other control characters are escaped.

    \b
    Examples:
      automl logs nmt 7
      automl logs nmt 7 --rank 1
      automl logs 7                 of the newest sweep
      automl logs nmt               the newest trial
    """
    if trial is None and sweep.isdecimal():
        sweep, trial = newest_sweep(ledger), int(sweep)
    trials = ledger.trials(sweep)
    if trial is None:
        begun = [one for one in trials if one.attempts]
        newest = max(begun, key=lambda one: (one.started or 0.0, one.number), default=None)
        trial = newest.number if newest else 0
        say(f"trial {trial} of {sweep}, the newest of {len(begun)}", err=True)
    folder = ledger.files(sweep) / "trials" / str(trial) / LOGS
    if trial >= len(trials):
        raise UsageError(
            f"{sweep} has {len(trials)} trials, counted from 0; there is no trial {trial}"
        )
    if not trials[trial].attempts:
        raise UsageError(f"trial {trial} of {sweep} has not begun: it has no log")
    last = trials[trial].attempts
    name = log_name(attempt or last, rank)
    traceback = trials[trial].traceback if attempt in (None, last) else ""
    try:
        with folder.open(name, "r", encoding="utf-8", errors="replace") as file:
            for line in file:
                click.echo(printable(_COLOURS.sub("", line), keep="\n\t"), nl=False)
    except FileNotFoundError as error:
        if not traceback:
            names = ", ".join(found for found in folder.names() if found.endswith(".log"))
            hint = f"there are {names}" if names else "it may have run inline or on another machine"
            raise UsageError(f"trial {trial} has no log at {folder.path / name}; {hint}") from error
    click.echo(printable(traceback, keep="\n\t"), nl=False)
