"""`automl resume SWEEP`: continue an interrupted sweep."""

import os
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from automl.config.limits import Changes, read_changes
from automl.config.overrides import plain_changes
from automl.core import Snapshot, SweepSpec, TrialState
from automl.core.resources import checked_budget
from automl.core.text import Typed, present_folder, why_early
from automl.errors import UsageError
from automl.workflows import steering
from search_spaces.change import changes
from search_spaces.validation import show
from workers.artifacts.location import read_location

from .common import (
    dispatching,
    given_limits,
    json_option,
    objective_option,
    opened,
    overrides_argument,
    say,
    setting,
    store_option,
    sweep_argument,
    trial_option,
)
from .program import Program, ProgramVerb, checked, load_trained, named, signed
from .running import check_runnable, dispatcher_of, run_sweep

_FIXED: Final = ("workload", "data", "fixed")  # earlier trials have it
_TAKEN: Final = (  # of a configuration that is read again
    *("goals", "constraints", "budget", "suggester", "suggester_options", "stopper"),
    *("stopper_options", "workers", "min_workers", "resources", "seed", "max_retries", "max_steps"),
    *("resumable", "ranks", "timeout", "prior", "trackers", "reports", "cwd", "stop_grace"),
    *("learns", "replicates", "space"),
)


@click.command(cls=ProgramVerb)
@sweep_argument
@overrides_argument
@click.option(
    "--config",
    metavar="FILE",
    help="Take the space from this configuration, which may have changed since.",
)
@trial_option("Continue only this paused trial of a sweep that runs elsewhere.")
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

    KEY=VALUE changes the sweep as `automl set` does; here the space may also get wider ranges,
    other choices, new parameters with a default (space.NAME.FIELD=VALUE). Finished trials stay, and
    what was learned is kept. Interrupted trials continue from their newest checkpoint. A sweep that
    reached its budget needs a larger one to go on.

    \b
    Examples:
      automl resume nmt
      automl resume nmt --trials 60 --budget 1h
      automl resume nmt workers=4 space.learning_rate=[1e-4,0.3] 'space.optimizer=[adamw, lion]'
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
    words = [word for name, value in given.items() if value for word in (name, value)]
    typed = Typed(store, objective, options["ray_address"], (*words, *overrides))
    absolute = store if "://" in store else os.path.abspath(store)  # noqa: PTH100
    with opened(absolute, write=True) as ledger:
        stored = checked(ledger.spec(sweep))
        of_space, changed = _apart(stored, overrides)
        limits: Mapping[str, Any] = {**changed.budget, **given_limits(trials, budget)}
        spec = stored
        if config is not None:
            wanted = _read_again(config, of_space, stored, options)
        if wanted is not None:
            added = sum(trial.source == "added" for trial in ledger.trials(sweep))
            spec = _edited(stored, wanted, added)
            limits = changed.budget if config is None else limits
        elif of_space:
            from automl.config.overrides import with_changes

            spec = replace(spec, space=with_changes(spec.space, of_space))
        spec = replace(spec, budget=checked_budget(replace(spec.budget, **limits)))
        spec = spec if changed.workers is None else spec.with_workers(changed.workers)
        if wanted is None:
            spec = spec.with_location("")
        spec = spec.with_location(read_location(artifacts)) if artifacts else spec
        options["dispatcher"] = dispatcher_of(stored, options["dispatcher"])
        objective, program, is_typed = named(wanted or stored, objective, program)
        typed = replace(typed, objective=objective)
        same = all(getattr(spec, name) == getattr(stored, name) for name in _TAKEN)
        same = same and not changed.space
        if same and (why := why_finished(ledger.snapshot(sweep))):
            more = str(max(2 * len(ledger.trials(sweep)), 10))
            say(f"{sweep} is finished{why}: {typed.line(spec, '--trials', more)}", err=True)
            return 0
        num, most = len(ledger.trials(sweep)), spec.budget.trials
        if trials and most is not None and most <= num:
            begun = f"{sweep} has {num} trials, and --trials {trials} counts them too"
            say(f"{begun}: no new one begins; to run more, give --trials {2 * num}", err=True)
        runs = objective is not None or program is not None
        with chdir(cwd) if cwd is not None else nullcontext():
            if options["dispatcher"] != "agents":  # they know what to train
                check_runnable(spec, typed, program, "resume")
                spec = replace(spec, command="" if program is None else str(program))
                if stored.command not in ("", spec.command):
                    line = f"the sweep ran {stored.command}, and runs {spec.command} now: "
                    say(f"{line}the results of both are compared", err=True)
                if runs and cwd is None and not moved:
                    _check_folder(spec, typed)
            function = load_trained(spec, objective, program)
            spec = replace(spec, folder=present_folder(), dispatcher=options["dispatcher"])
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
    from automl.config import load

    loaded = load(config, words, objective=None)
    typed = options["dispatcher"] or options["ray_address"]
    if not typed and loaded.dispatcher != "auto":
        options |= {"dispatcher": loaded.dispatcher, "ray_address": loaded.ray_address}
    if "resumable" in loaded.named:
        return loaded.spec
    return replace(loaded.spec, resumable=stored.resumable)


def _apart(spec: SweepSpec, overrides: tuple[str, ...]) -> tuple[tuple[str, ...], Changes]:
    """The words that change the space itself, and the other changes.

    A single value of a parameter limits what is tried of it; the space stays.
    """
    found = plain_changes(overrides)
    limits = {
        key
        for key, value in found.items()
        if key.removeprefix("space.") in spec.space.parameters
        and key.startswith("space.")
        and not isinstance(value, list | dict)
    }
    others = {key: v for key, v in found.items() if key in limits or key[:6] != "space."}
    words = tuple(text for text in overrides if text.partition("=")[0] not in others)
    return words, read_changes(others)


def _check_folder(spec: SweepSpec, typed: Typed) -> None:
    """Raise UsageError if the sweep began in another folder than this one."""
    here = Path.cwd()
    if spec.folder and Path(spec.folder).resolve() != here.resolve():
        raise UsageError(
            f"sweep {spec.name} began in the folder {spec.folder}, and this is {here}: the same "
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
    if early:
        return f": {snapshot.reason}; to continue, raise --trials or --budget, or widen its space"
    return "; to continue, raise --trials or --budget"


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
    before, after = stored.to_dict(), wanted.to_dict()
    for name in _FIXED:
        if getattr(stored, name) != getattr(wanted, name):
            raise UsageError(
                f"{name} of the sweep {stored.name} was {show(before.get(name))}, and the "
                f"configuration says {show(after.get(name))}: earlier trials have it, so begin "
                "another sweep (--name), or write the old value"
            )
    for name in _TAKEN:
        if name not in ("space", "goals") and getattr(stored, name) != getattr(wanted, name):
            said = f"{show(before.get(name))} became {show(after.get(name))}"
            say(f"changed by the configuration: {name}: {said}", err=True)
    if changed := changes(stored.space, wanted.space):
        say(f"changed by the configuration: {'; '.join(changed)}", err=True)
    taken = {name: getattr(wanted, name) for name in _TAKEN}
    return replace(stored, **taken, artifacts=wanted.artifacts)
