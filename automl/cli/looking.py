"""The verbs that show sweeps. Those that print to the terminal load neither torch nor Ray."""

import re
import time
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from automl.core import Snapshot, Trial, TrialState, ranking
from automl.core.arguments import duration
from automl.core.text import (
    again,
    configuration,
    memory,
    number,
    printable,
    state_of,
    why_no_best,
)
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.report.record import Confirmation, Record, read_confirmation
from automl.report.terminal import SweepView, console, view
from workers.command.goal_proposals import COLOURS
from workers.protocol import LOGS, log_name

from . import NO_SUCCESS
from .common import (
    STORE,
    draw,
    draw_table,
    emit,
    json_option,
    newest_argument,
    opened,
    reads_store,
    say,
    setting,
    store_option,
    sweep_argument,
)

_COLOURS: Final = re.compile(COLOURS)
WATCH_SECONDS: Final = 1.0  # between two looks at a running sweep
BEST_SECONDS: Final = 0.3  # of a list, for the best values


@click.command()
@newest_argument
@reads_store
@json_option
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
    return draw(SweepView(snapshot, height=24), width=100)


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
@reads_store
def watch(ledger: Ledger, sweep: str) -> None:
    """Watch a running sweep from another terminal. Ctrl-C ends the view, not the sweep.

    \b
    Example:
      automl watch nmt
    """
    follower = ledger.follow(sweep)
    with view() as show:
        try:
            while True:
                follower.refresh()
                show(snapshot := follower.snapshot())
                if snapshot.state != "running":
                    return
                time.sleep(WATCH_SECONDS)
        except KeyboardInterrupt:
            return


@click.command()
@newest_argument
@reads_store
@json_option
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
    lines = [configuration(trial.params) for trial in snapshot.trials]
    for trial, line in zip(snapshot.trials, lines, strict=True):
        values = [snapshot.value(trial, index) for index in range(len(goals))]
        name = f"{trial.number}{'*' if trial.number == best else ' '}"
        cells = ["-" if value is None else number(value) for value in values]
        measured = [duration(trial.seconds), memory(trial.peak_memory_bytes)]
        rows.append([name, state_of(trial, snapshot), *cells, *measured, again(trial) + line])
    columns = ["trial", "state", *goals, "time", "memory", "configuration"]
    draw_table(columns, rows, ["trial", *goals, "time", "memory"])
    if best is not None:
        draw(Text(f"* the best by {snapshot.goals[0]}", style="dim"))
    return None


@click.command()
@newest_argument
@reads_store
@json_option
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
    snapshot = ledger.snapshot(sweep)
    confirmation = read_confirmation(ledger, snapshot)
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
    from automl.report.summary import print_answer  # `status` needs none of it

    print_answer(console(), record, more=True)
    return None


def _best_object(
    snapshot: Snapshot,
    trial: Trial,
    advice: Any,
    confirmation: Confirmation | None,
) -> dict[str, Any]:
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
    return {goal.metric: snapshot.value(trial, index) for index, goal in enumerate(snapshot.goals)}


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
    value = snapshot.value(snapshot.best) if snapshot.best else None
    return "-" if value is None else f"{snapshot.goals[0].metric} {number(value)}"


@click.command()
@sweep_argument
@click.argument("trial", type=click.IntRange(0))
@click.option(
    "--rank",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Rank of a trial that has several.",
)
@click.option(
    "--attempt",
    type=click.IntRange(1),
    help="Attempt of a trial that was retried.  [default: the last]",
)
@reads_store
def logs(ledger: Ledger, sweep: str, trial: int, rank: int, attempt: int | None) -> None:
    """Show what one rank of a trial has printed, and the traceback if it raised an exception.

    A trial that ran inline has printed to the terminal of its sweep.

    Colours are left out, and other control characters are escaped.

    \b
    Examples:
      automl logs nmt 7
      automl logs nmt 7 --rank 1
    """
    trials = ledger.trials(sweep)
    folder = ledger.files(sweep) / "trials" / str(trial) / LOGS
    if trial >= len(trials):
        raise UsageError(
            f"{sweep} has {len(trials)} trials, counted from 0; there is no trial {trial}"
        )
    last = trials[trial].attempts
    name = log_name(attempt or last, rank)
    traceback = trials[trial].traceback if attempt in (None, last) else ""
    try:
        with folder.file(name).open(encoding="utf-8", errors="replace") as file:
            for line in file:
                click.echo(printable(_COLOURS.sub("", line), keep="\n\t"), nl=False)
    except FileNotFoundError as error:
        if not traceback:
            names = ", ".join(found for found in folder.names() if found.endswith(".log"))
            hint = f"there are {names}" if names else "it may have run inline or on another machine"
            hint = hint if last else "it has not begun"
            raise UsageError(f"trial {trial} has no log at {folder.path / name}; {hint}") from error
    click.echo(printable(traceback, keep="\n\t"), nl=False)


@click.command()
@newest_argument
@click.option("--output", "-o", metavar="FILE", help="File to write.  [default: SWEEP.html]")
@reads_store
def report(ledger: Ledger, sweep: str, output: str | None) -> None:
    """Write the report of a sweep as one HTML file that works offline, also while it runs.

    \b
    Examples:
      automl report nmt
      automl report nmt -o /tmp/nmt.html
    """
    from automl.report.page import save

    path = Path(output or f"{sweep}.html")
    save(Record.read(ledger, sweep), path)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")


@click.command()
@newest_argument
@click.option("--output", "-o", metavar="DIR", help="A new folder.  [default: SWEEP-model]")
@click.option("--trial", type=int, metavar="N", help="Number of a trial.  [default: the best one]")
@setting("artifacts")
@reads_store
@json_option
def export(
    ledger: Ledger,
    sweep: str,
    output: str | None,
    trial: int | None,
    artifacts: str | None,
    as_json: bool,
) -> None:
    """Write the model of the best trial: weights, configuration and a model card.

    The weights of a function or a program are the files that it has written into the folders of the
    trial, and what `trial.save` has saved.

    \b
    Examples:
      automl export nmt
      automl export nmt --trial 7 -o models/seven
      automl export nmt --artifacts s3://bucket/sweeps      fetch it from there
    """
    from automl.workflows.export import chosen, export

    target = Path(output or f"{sweep}-model")
    which = chosen(ledger, sweep, trial)
    files = export(ledger, sweep, which, target, artifacts)
    if as_json:
        return emit({"trial": which.number, "folder": str(target), "files": files})
    width = max(map(len, files))
    lines = [f"  {name:<{width}}  {description}" for name, description in files.items()]
    return say("\n".join([f"trial {which.number} is in {target}:", *lines]))


@click.command()
@store_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: any]"
)
def studio(store: str, port: int) -> None:
    """Serve every sweep of a store as a web application. Ctrl-C ends it, not the sweeps.

    It prints one address, which holds the token of this studio. Only this machine can reach it.
    From another one: ssh -L PORT:127.0.0.1:PORT HOST.

    \b
    Examples:
      automl studio
      automl studio --store postgresql://host/runs --port 8800
    """
    from automl.studio.server import StudioServer

    with opened(store, create=store == STORE) as ledger:  # one may open it before the first sweep
        server = StudioServer(ledger, port, "" if store == STORE else store)
        say(server.address())
        say("Ctrl-C ends the studio, not the sweeps", err=True)
        server.run()
