"""Runs a sweep in this process: `resume`, `confirm`, `ab`, and what `sweep` shares with them."""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import chdir, closing, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from automl import sweeps
from automl.config import load
from automl.config.loading import plain_changes, read_changes
from automl.control.beginning import code_changed
from automl.control.machine import SafeEnd
from automl.core import Goal, Snapshot, SweepSpec, TrialState
from automl.core.resources import checked_budget
from automl.core.text import Typed, number, told_how_to_resume, why_early
from automl.errors import AutomlError, UsageError
from automl.ledger import Ledger
from automl.ledger.ledger import STALE_SECONDS
from automl.report.record import KIND, Confirmation, read_confirmation
from automl.report.summary import print_summary
from automl.report.terminal import console, view
from automl.workflows import steering
from automl.workflows.ab import A, B, PairedTest, compare, of_commands
from automl.workflows.confirm import chosen, derived, missing, prepare
from automl.workflows.export import moved_to
from automl.workflows.objective import digests
from search_spaces.change import changes
from search_spaces.values import show
from workers.artifacts import read_location
from workers.command.goal_proposals import larger_is_better
from workers.command.reports import compile_pattern

from . import FAILED, INTERRUPTED, NO_SUCCESS, SHOULD_STOP
from .before import printed_by
from .common import (
    Program,
    ProgramVerb,
    checked,
    dispatching,
    draw,
    draw_table,
    emit,
    given_settings,
    json_option,
    load_trained,
    named,
    objective_option,
    opened,
    overrides_argument,
    say,
    setting,
    signed,
    store_option,
    sweep_argument,
)
from .looking import status_object

LOOK_SECONDS: Final = 2.0  # between two looks at who holds a sweep


def check_runnable(spec: SweepSpec, typed: Typed, program: Program | None, verb: str) -> None:
    """Check that a stored sweep has what it needs to run.

    Args:
        spec: of the sweep.
        typed: may name the function.
        program: a command.
        verb: of the command line, for messages.

    Raises:
        UsageError: the objective is missing, or the sweep has a workload instead.
        DataError: the data of the workload is missing.
    """
    lacks_command = bool(spec.origin.command) and program is None
    if lacks_command or (spec.workload is None and typed.objective is None and program is None):
        what = "runs a command that no configuration of yours has named; type it:"
        if not lacks_command:
            what = "tunes a function of your own: name it with --objective FILE:NAME, as in"
        raise UsageError(f"sweep {spec.name} {what} {typed.line(spec, verb=verb)}")
    if spec.workload is not None:
        from workers.workloads import WORKLOADS

        if typed.objective is not None or program is not None:
            raise UsageError(
                f"sweep {spec.name} tunes the workload {spec.workload}: leave the function or the "
                "command out"
            )
        WORKLOADS.get(spec.workload).check(spec.data, spec.fixed)


def wait_for_lost_controller(store: str, sweep: str) -> None:
    """Wait while a sweep seems to run: its controller may have been lost with its machine.

    Such a controller counts as dead `STALE_SECONDS` after its last sign of life. If it lives,
    whoever wants the sweep is refused after this.
    """
    deadline = time.monotonic() + STALE_SECONDS + LOOK_SECONDS
    with opened(store) as ledger:
        if ledger.snapshot(sweep).state == "running":
            say(f"{sweep} seems to run; this command waits until its controller is gone", err=True)
        while time.monotonic() < deadline and ledger.snapshot(sweep).state == "running":
            time.sleep(LOOK_SECONDS)


def run_sweep(
    spec: SweepSpec,
    ledger: Ledger,
    typed: Typed,
    objective: Callable[[Any], Any] | None,
    *,
    summary: bool = True,
    as_json: bool = False,
    **run_options: Any,
) -> int:
    """Run a sweep of the ledger until it ends, and return the exit status.

    Args:
        typed: what the lines that the user may type next repeat.
        summary: print the final status or, if it is False, only how to resume.
        as_json: print the status as JSON, without the live view.
        run_options: `dispatcher`, `ray_address` and `resume` of `automl.sweeps.run`.
    """
    again = typed.line(spec)
    shown = nullcontext(lambda snapshot: None) if as_json else view()
    with SafeEnd(), told_how_to_resume(again), shown as show:
        snapshot = sweeps.run(
            spec, ledger=ledger, objective=objective, on_change=show, **run_options
        )
        show(snapshot)
    if as_json:
        if summary:
            emit(status_object(snapshot))
    elif summary:
        print_summary(console(), snapshot, typed, read_confirmation(ledger, snapshot))
    elif snapshot.state == "interrupted":
        say(f"interrupted; continue with: {again}", err=True)
    if snapshot.state == "finished":
        return 0 if snapshot.best else NO_SUCCESS
    return INTERRUPTED if snapshot.state == "interrupted" else FAILED


_FIXED: Final = ("workload", "data", "fixed")  # earlier trials have it
# What is taken of a configuration that is read again.
_TAKEN: Final = {one.name for one in fields(SweepSpec)} - {
    *_FIXED,
    *("name", "artifacts", "metrics", "paired", "origin", "history"),
}


@click.command(cls=ProgramVerb)
@sweep_argument
@overrides_argument
@click.option(
    "--config",
    metavar="FILE",
    help="Read this configuration again, which may have changed since; KEY=VALUE changes it first.",
)
@click.option(
    "--trial",
    metavar="N",
    type=click.IntRange(0),
    help="Continue only this paused trial of a sweep that runs elsewhere.",
)
@store_option
@setting("trials")
@setting("budget")
@json_option
@objective_option
@setting("artifacts")
@click.option(
    "--cwd",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="Run the function or command in this folder; without it, only in the folder where the "
    "sweep began.",
)
@dispatching("as before")
def resume(sweep: str, store: str, trial: int | None, **options: Any) -> int:
    """Continue an interrupted sweep with the rest of its budget, or with a larger one.

    KEY=VALUE changes the sweep as `automl set` does. An edited configuration may also have wider
    ranges, other choices, new parameters with a default. Finished trials stay, and what was learned
    is kept. Interrupted trials continue from their newest checkpoint. A sweep that reached its
    budget needs a larger one to go on.

    \b
    Examples:
      automl resume nmt
      automl resume nmt --trials 60 --budget 1h
      automl resume nmt workers=4 space.learning_rate=[1e-4,1e-3] space.precision=fp32
      automl resume nmt --trials 60 --config configs/nmt.yaml
      automl resume mine --objective train.py:objective
      automl resume mine -- python train.py --lr={lr}
      automl resume nmt --artifacts s3://bucket/sweeps
      automl resume nmt --trial 12
    """
    if trial is None:
        return continue_sweep(sweep, store, **options)
    with opened(store, write=True) as ledger:
        say(steering.resume_trial(ledger, sweep, trial))
    return 0


def continue_sweep(
    sweep: str,
    store: str,
    *,
    trials: str | None,
    budget: str | None,
    objective: str | None,
    program: Program | None,
    config: str | None = None,
    overrides: tuple[str, ...] = (),
    artifacts: str | None = None,
    cwd: str | None = None,
    moved: bool = False,
    wanted: SweepSpec | None = None,
    **options: Any,
) -> int:
    """Run the rest of a sweep, and return the exit status; the arguments are those of the verb.

    Args:
        moved: it may go on in another folder than the one where it began, without `cwd`.
        wanted: what a configuration says of it now.
    """
    given = {"--trials": trials, "--budget": budget, "--config": config, "--cwd": cwd}
    again = [word for name, value in given.items() if value for word in (name, value)]
    typed = Typed(store, objective, options["ray_address"], (*again, *overrides))
    absolute = store if "://" in store else os.path.abspath(store)  # noqa: PTH100
    with opened(absolute, write=True) as ledger:
        stored = checked(ledger.spec(sweep))
        words = [
            *([] if config else overrides),
            *given_settings({"trials": trials, "budget": budget}),
        ]
        changed = read_changes(plain_changes(words))
        if config is not None:
            wanted = _read_again(config, overrides, stored, options)
        if wanted is not None:
            added = sum(trial.source == "added" for trial in ledger.trials(sweep))
            spec = _edited(stored, wanted, added)
        else:
            spec = replace(stored, workers=changed.workers or stored.workers).with_location("")
        if wanted is None or config is not None:
            budget_now = replace(spec.budget, **changed.budget)
            spec = replace(spec, budget=checked_budget(budget_now))
        spec = spec.with_location(read_location(artifacts)) if artifacts else spec
        options["dispatcher"] = options["dispatcher"] or stored.origin.dispatcher or "auto"
        objective, program, is_typed = named((wanted or stored).origin, objective, program)
        typed = replace(typed, objective=objective)
        same = all(getattr(spec, name) == getattr(stored, name) for name in _TAKEN)
        if same and not changed.space and (why := why_finished(ledger.snapshot(sweep))):
            more = str(max(2 * len(ledger.trials(sweep)), 10))
            say(f"{sweep} is finished{why}: {typed.line(spec, '--trials', more)}", err=True)
            return 0
        with chdir(cwd) if cwd is not None else nullcontext():
            if options["dispatcher"] != "agents":  # they know what to train
                check_runnable(spec, typed, program, "resume")
                typed_words = "" if program is None else str(program)
                spec = replace(spec, origin=replace(spec.origin, command=typed_words))
                if not (spec.workload or cwd or moved):
                    _check_folder(spec, typed)
            function = load_trained(spec, objective, program)
            origin = replace(
                spec.origin,
                folder=str(Path.cwd()),
                dispatcher=options["dispatcher"],
                code=digests(function),
            )
            spec = replace(spec, origin=origin)
            if said := code_changed(stored, spec, len(ledger.trials(sweep))):
                say(said, err=True)
            spec = signed(spec, objective, typed=is_typed)
            if changed.space:
                steering.change(ledger, sweep, {f"space.{n}": v for n, v in changed.space.items()})
            return run_sweep(spec, ledger, typed, function, resume=True, **options)


def _read_again(
    config: str, words: tuple[str, ...], stored: SweepSpec, options: dict[str, Any]
) -> SweepSpec:
    """What a configuration says of a sweep now; its dispatcher goes into `options`.

    What follows from the function, if the configuration does not say it, stays.
    """
    loaded = load(config, words, objective=None)
    typed = options["dispatcher"] or options["ray_address"]
    if not typed and loaded.dispatcher != "auto":
        options |= {"dispatcher": loaded.dispatcher, "ray_address": loaded.ray_address}
    if "resumable" in loaded.named:
        return loaded.spec
    return replace(loaded.spec, resumable=stored.resumable)


def _check_folder(spec: SweepSpec, typed: Typed) -> None:
    here = Path.cwd()
    if (folder := spec.origin.folder) and Path(folder).resolve() != here.resolve():
        raise UsageError(
            f"sweep {spec.name} began in the folder {folder}, and this is {here}: the same "
            f"words may run another program here. Go there, or run it here: "
            f"{typed.line(spec, '--cwd', '.')}"
        )


def why_finished(snapshot: Snapshot) -> str:
    """Why nothing is left to do in a sweep, and what to change; "" if it can go on.

    A sweep that ended because every trial failed can: the objective may be mended.
    """
    succeeded = snapshot.in_state(TrialState.COMPLETED, TrialState.STOPPED)
    early = why_early(snapshot)
    if snapshot.state != "finished" or (early and not succeeded):
        return ""
    why = f": {snapshot.reason}" if early else ""
    return f"{why}; to continue, raise --trials or --budget"


def _edited(stored: SweepSpec, wanted: SweepSpec, added: int) -> SweepSpec:
    """The spec of a sweep with what its configuration says now; says what has changed.

    Args:
        added: number of imported trials, which are beside the budget of a configuration.

    Raises:
        UsageError: something has changed that the earlier trials have.
    """
    if added and wanted.budget.trials is not None:
        more = wanted.budget.trials + added
        wanted = replace(wanted, budget=replace(wanted.budget, trials=more))
    for name in _FIXED:
        if (before := getattr(stored, name)) != (after := getattr(wanted, name)):
            raise UsageError(
                f"{name} of the sweep {stored.name} was {show(before)}, and the "
                f"configuration says {show(after)}: earlier trials have it, so begin "
                "another sweep (--name), or write the old value"
            )
    taken = {name: getattr(wanted, name) for name in _TAKEN} | {
        "knowledge": replace(wanted.knowledge, earlier=stored.knowledge.earlier)
    }
    edited, known = replace(stored, **taken), stored.to_dict()
    for name, value in edited.to_dict().items():
        if name not in ("space", "goals") and value != known[name]:
            old, new = (
                {k: v for k, v in one.items() if other.get(k) != v}
                if isinstance(one, dict) and isinstance(other, dict)
                else one
                for one, other in ((known[name], value), (value, known[name]))
            )
            say(f"changed by the configuration: {name}: {show(old)} became {show(new)}", err=True)
    if changed := changes(stored.space, wanted.space):
        say(f"changed by the configuration: {'; '.join(changed)}", err=True)
    return replace(edited, artifacts=wanted.artifacts)


@click.command(cls=ProgramVerb)
@sweep_argument
@store_option
@click.option(
    "--seeds",
    type=click.IntRange(2),
    default=3,
    show_default=True,
    help="Runs of each configuration.",
)
@click.option(
    "--top", type=click.IntRange(2), default=3, show_default=True, help="Number of configurations."
)
@json_option
@objective_option
@setting("artifacts")
@dispatching("as before")
def confirm(
    sweep: str,
    store: str,
    seeds: int,
    top: int,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Train the best configurations again with other seeds, to see whether the lead is noise.

    They are the recommended one, the next ones and the best single trial.

    The runs are kept as the sweep SWEEP.confirm. `best` and `report` then show the result. If you
    run it again, only missing runs are trained.

    \b
    Examples:
      automl confirm nmt
      automl confirm nmt --seeds 5 --top 2
      automl confirm mine -- python train.py --lr={lr}
    """
    with opened(store, write=True) as ledger:
        spec, snapshot = checked(ledger.spec(sweep)), ledger.snapshot(sweep)
        configurations = chosen(snapshot, spec.known_space, top)
        if not configurations:
            raise AutomlError(f"no trial of {sweep} has succeeded: there is nothing to confirm")
        runs = missing(ledger, sweep, configurations, seeds)
        if runs:
            typed = Typed(store, objective, options["ray_address"])
            objective, program, _ = named(spec.origin, objective, program)
            typed = replace(typed, objective=objective)
            check_runnable(spec, typed, program, "confirm")
            function = load_trained(spec, objective, program)
            options |= {"summary": False, "resume": True, "as_json": as_json}
            last = spec.origin.dispatcher.replace("agents", "")  # they ask for one sweep only
            options["dispatcher"] = options["dispatcher"] or last or "auto"
            again = moved_to(derived(spec, KIND, len(runs)), artifacts)
            again = prepare(ledger, again, [trial.params for trial in runs])
            if status := run_sweep(again, ledger, typed, function, **options):
                return status
        confirmation = read_confirmation(ledger, ledger.snapshot(sweep))
    if confirmation is None:
        say(f"the best trial of {sweep} has changed meanwhile: confirm it again", err=True)
        return FAILED
    if as_json:
        emit({"sweep": sweep, **confirmation.to_dict()})
    else:
        _print(confirmation)
    return 0


def _print(confirmation: Confirmation) -> None:
    rows = [
        [
            str(runs.trial),
            number(runs.mean),
            number(runs.deviation),
            str(runs.failed),
            "  ".join(map(number, runs.values)),
        ]
        for runs in confirmation.repeats
    ]
    columns = ["trial", "mean", "deviation", "failed", "runs"]
    draw_table(columns, rows, columns[:4])
    draw(f"\n{confirmation}")


# is B better than A?

EXITS: Final = {"better": 0, "worse": SHOULD_STOP, "no difference": SHOULD_STOP}


@click.command(
    cls=ProgramVerb,
    parts=("program", "other"),
    usage="[-- COMMAND_A [ARG]...] [-- COMMAND_B [ARG]...]",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="That the programs report or print.  [default: A is run for at most 20 s, to see what it "
    "prints]",
)
@click.option("--maximize/--minimize", default=None, help="Whether a large value is good.")
@click.option(
    "--alpha",
    type=float,
    metavar="P",
    default=0.05,
    show_default=True,
    help="Largest probability to call B better if it is not.",
)
@click.option(
    "--effect",
    type=float,
    metavar="D",
    default=1.0,
    show_default=True,
    help="Difference that must be found, with 90%: in standard deviations of the differences "
    "between two runs with the same seed.",
)
@click.option(
    "--runs",
    type=click.IntRange(2, 100_000),
    metavar="N",
    help="Most runs, of both sides together.  [default: 60, more for a small effect]",
)
@click.option(
    "--reports",
    metavar="REGEX",
    help="How the programs print the metric, with one group, such as 'loss (\\S+)'.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="Of the seeds of two programs.  [default: new ones each time]",
)
@store_option
@json_option
@dispatching()
def ab(
    alpha: float,
    effect: float,
    runs: int | None,
    seed: int | None,
    as_json: bool,
    store: str,
    program: Program | None,
    dispatcher: str | None,
    ray_address: str | None,
    other: Program | None = None,
    **options: Any,
) -> int:
    """Say whether the program B is better than A.

    Both run in pairs that have the same seed (`{seed}`, AUTOML_SEED). It ends as soon as the answer
    is sure enough, often after a dozen runs. The metric is read from AUTOML_REPORTS, or from lines
    such as `METRIC 0.5`, `METRIC=0.5` or `METRIC: 0.5`. The runs are kept as a sweep.

    \b
    Examples:
      automl ab --metric loss -- python a/train.py -- python b/train.py
      automl ab --metric acc --maximize -- ./old --seed={seed} -- ./new --seed={seed}

    Exit status: 0 if B is better, 10 if it is not, 3 if that is not known.
    """
    test = PairedTest(alpha, effect)
    most = 2 * test.most_pairs if runs is None else runs
    if program is None or other is None:
        raise UsageError(
            "compare two commands, as in automl ab -- python a/train.py -- python b/train.py"
        )
    goal, patterns = _goal(program, **options)
    seed = secrets.randbelow(2**31) if seed is None else seed
    spec = of_commands(goal, f"{program} {other}", patterns, seed)
    both = {A: program, B: other}
    commands: Any = {side: load_trained(spec, None, one) for side, one in both.items()}
    with closing(Ledger.open(store, create=True)) as ledger:
        run = partial(
            sweeps.run,
            ledger=ledger,
            objective=replace(commands[A], others=commands),
            dispatcher=dispatcher or "auto",
            ray_address=ray_address,
            resume=True,
        )
        comparison, snapshot = compare(
            *(ledger, spec, test, most, run), tell=lambda one: say(str(one), err=True)
        )
    if as_json:
        emit(comparison.to_dict())
    say(str(comparison), err=as_json)
    if snapshot.state != "finished":
        return INTERRUPTED
    return EXITS.get(comparison.answer, NO_SUCCESS)


def _goal(
    program: Program, *, metric: str | None, maximize: bool | None, reports: str | None
) -> tuple[Any, dict[str, str]]:
    """The goal, and how the commands print its metric.

    Raises:
        UsageError: the metric, its direction or the expression is missing or wrong.
    """
    patterns = {}
    if metric is None:
        found = printed_by(program)
        if not found or (len(found) > 1 and not found[0].of_validation):
            names = ", ".join(one.name for one in found) or "none is known"
            raise UsageError(f"name the metric with --metric, of those that A prints: {names}")
        metric, patterns = found[0].name, {"step": found[0].step, found[0].name: found[0].pattern}
    up = larger_is_better(metric) if maximize is None else maximize
    if up is None:
        raise UsageError(f"add --minimize or --maximize: which {metric} is good is not known")
    if reports is not None:
        patterns[metric] = reports
    patterns = {name: text for name, text in patterns.items() if text}
    for name, text in patterns.items():
        compile_pattern(name, text)
    return Goal.parse(f"{'maximize' if up else 'minimize'} {metric}"), patterns
