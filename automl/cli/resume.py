"""`automl resume SWEEP`: continue an interrupted sweep."""

from dataclasses import replace
from typing import Any

from automl.core import Snapshot, SweepSpec, TrialState
from automl.core.text import why_early
from automl.errors import UsageError
from workers.artifacts.location import read_location

from .common import given_limits, opened, say
from .program import Program, load_trained
from .running import check_runnable, run_sweep


def resume(sweep: str, store: str, trial: int | None, **options: Any) -> int:
    """Continue a sweep here, or a paused trial where its sweep runs; return the exit status."""
    if trial is None:
        return continue_sweep(sweep, store, **options)
    from automl.workflows import steering

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
    **options: Any,
) -> int:
    """Run the rest of a sweep, and return the exit status; the arguments are those of the verb."""
    with opened(store, write=True) as ledger:
        stored = ledger.spec(sweep)
        spec = replace(stored, budget=replace(stored.budget, **given_limits(trials, budget)))
        spec = _with_space(spec.with_location(""), config, overrides)
        spec = spec.with_location(read_location(artifacts)) if artifacts else spec
        same = (spec.budget, spec.space) == (stored.budget, stored.space)
        if same and (words := why_finished(ledger.snapshot(sweep, condensed=True))):
            say(f"{sweep} is finished{words}", err=True)
            return 0
        if options["dispatcher"] != "agents":  # they know what to train
            check_runnable(spec, objective, program, "resume")
            spec = replace(spec, command="" if program is None else str(program))
        function = load_trained(spec, objective, program)
        return run_sweep(spec, ledger, store, function, resume=True, **options)


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


def _with_space(spec: SweepSpec, config: str | None, overrides: tuple[str, ...]) -> SweepSpec:
    """The spec with the space of a configuration, or with the overrides in its own."""
    if config is not None:
        from automl.config import load

        found = load(config, overrides, objective=None).spec
        if found.workload != spec.workload:
            raise UsageError(
                f"--config: {config} tunes {found.trained}, sweep {spec.name} tunes {spec.trained}"
            )
        return replace(spec, space=found.space, artifacts=found.artifacts)
    if overrides:
        from automl.config.overrides import with_changes

        return replace(spec, space=with_changes(spec.space, overrides))
    return spec
