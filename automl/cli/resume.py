"""`automl resume SWEEP`: continue an interrupted sweep."""

import os
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from automl.config.limits import Changes, read_changes
from automl.config.overrides import plain_changes
from automl.core import Snapshot, SweepSpec, TrialState
from automl.core.budget import checked_budget
from automl.core.resuming import Typed, present_folder
from automl.core.text import why_early
from automl.errors import UsageError
from automl.workflows import steering
from workers.artifacts.location import read_location

from .common import given_limits, opened, say
from .program import Program, load_trained
from .running import check_runnable, dispatcher_of, run_sweep

_KEPT: Final = ("budget", "stopper", "suggester", "workers", "resources")  # by a sweep


def resume(sweep: str, store: str, trial: int | None, **options: Any) -> int:
    """Continue a sweep here, or a paused trial where its sweep runs; return the exit status."""
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
    **options: Any,
) -> int:
    """Run the rest of a sweep, and return the exit status; the arguments are those of the verb.

    Args:
        moved: it may go on in another folder than the one where it began, without `cwd`.
    """
    given = {"--trials": trials, "--budget": budget, "--config": config, "--cwd": cwd}
    changes = [word for name, value in given.items() if value for word in (name, value)]
    typed = Typed(store, objective, options["ray_address"], (*changes, *overrides))
    if cwd is not None and not Path(cwd).is_dir():
        raise UsageError(f"--cwd: there is no folder {cwd!r}")
    absolute = store if "://" in store else os.path.abspath(store)  # noqa: PTH100
    with opened(absolute, write=True) as ledger:
        stored = ledger.spec(sweep)
        options["dispatcher"] = dispatcher_of(stored, options["dispatcher"])
        of_space, changed = _apart(stored, overrides)
        limits = {**changed.budget, **given_limits(trials, budget)}
        spec = replace(stored, budget=checked_budget(replace(stored.budget, **limits)))
        spec = spec if changed.workers is None else spec.with_workers(changed.workers)
        spec = _with_space(spec.with_location(""), stored, config, of_space)
        spec = spec.with_location(read_location(artifacts)) if artifacts else spec
        same = (spec.budget, spec.space) == (stored.budget, stored.space) and not changed.space
        if same and (words := why_finished(ledger.snapshot(sweep, condensed=True))):
            more = str(max(2 * len(ledger.trials(sweep)), 10))
            say(f"{sweep} is finished{words}: {typed.line(spec, '--trials', more)}", err=True)
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
            if changed.space:
                steering.change(ledger, sweep, {f"space.{n}": v for n, v in changed.space.items()})
            return run_sweep(spec, ledger, typed, function, resume=True, **options)


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
    changes = {key: v for key, v in found.items() if key in limits or key[:6] != "space."}
    words = tuple(text for text in overrides if text.partition("=")[0] not in changes)
    return words, read_changes(changes)


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


def _with_space(
    spec: SweepSpec, stored: SweepSpec, config: str | None, overrides: tuple[str, ...]
) -> SweepSpec:
    """The spec with the space of a configuration, or with the overrides in its own.

    What else the configuration would change, of what was `stored`, is told.
    """
    if config is not None:
        from automl.config import load

        found = load(config, overrides, objective=None).spec
        if found.workload != spec.workload:
            raise UsageError(
                f"--config: {config} tunes {found.trained}, sweep {spec.name} tunes {spec.trained}"
            )
        same = [name for name in _KEPT if getattr(spec, name) == getattr(stored, name)]
        kept = [name for name in same if getattr(found, name) != getattr(stored, name)]
        if kept:
            line = f"--config: of {config} the space is taken; the sweep keeps its own "
            say(line + ", ".join(kept), err=True)
        # Other goals are refused where the sweep goes on.
        return replace(spec, space=found.space, goals=found.goals, artifacts=found.artifacts)
    if overrides:
        from automl.config.overrides import with_changes

        return replace(spec, space=with_changes(spec.space, overrides))
    return spec
