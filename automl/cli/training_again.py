"""The verbs that train the best configurations again: `confirm` and `fit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from automl.core.names import companion
from automl.core.resuming import Typed
from automl.errors import AutomlError, UsageError
from automl.workflows.artifacts import moved_to
from automl.workflows.retrain import derived, prepare

from .common import draw, draw_table, emit, opened, say
from .program import Program, load_trained
from .results import show_export
from .running import check_runnable, dispatcher_of, run_sweep

if TYPE_CHECKING:
    from automl.core import SweepSpec
    from automl.report.confirmations import Confirmation

FIT: Final = "fit"  # kind of the sweep in which the best configuration is trained


def confirm(
    sweep: str,
    store: str,
    seeds: int,
    top: int,
    probability: float | None,
    most: int,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Train the best configurations again with other seeds; return the exit status."""
    from automl.report import confirmations
    from automl.workflows.confirm import chosen, missing, next_runs

    if probability is not None and not 0 < probability < 1:
        raise UsageError(f"--probability must be more than 0 and less than 1, got {probability:g}")
    with opened(store, write=True) as ledger:
        spec, snapshot = ledger.spec(sweep), ledger.snapshot(sweep)
        configurations = chosen(snapshot, spec.known_space, top)
        if not configurations:
            raise AutomlError(f"no trial of {sweep} has succeeded: there is nothing to confirm")
        runs = missing(ledger, sweep, configurations, seeds)
        if runs or probability is not None:
            typed = Typed(store, objective, options["ray_address"])
            check_runnable(spec, typed, program, "confirm")
            function = load_trained(spec, objective, program)
            options |= {"summary": False, "resume": True, "as_json": as_json}
            options["dispatcher"] = dispatcher_of(spec, options["dispatcher"], agents=False)
        confirmation, counted = None, -1
        while True:
            if runs:
                again = moved_to(derived(spec, confirmations.KIND, len(runs)), artifacts)
                again = prepare(ledger, again, [trial.params for trial in runs])
                if status := run_sweep(again, ledger, typed, function, **options):
                    return status
            confirmation = confirmations.read(ledger, ledger.snapshot(sweep))
            if confirmation is None or probability is None:
                break
            goes_on = counted < confirmation.num_runs < most  # not if a run has no value
            if confirmation.probability >= probability or not goes_on:
                break
            counted = confirmation.num_runs
            runs = next_runs(confirmation, configurations)
    if confirmation is None:
        raise AutomlError(f"the best trial of {sweep} has changed meanwhile: confirm it again")
    if as_json:
        emit({"sweep": sweep, **confirmation.to_dict()})
    else:
        _print(confirmation)
    return 0


def _print(confirmation: Confirmation) -> None:
    from automl.core.text import number

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


def fit(
    sweep: str,
    store: str,
    output: str | None,
    trial: int | None,
    train_time: float | None,
    objective: str | None,
    program: Program | None,
    artifacts: str | None,
    **options: Any,
) -> int:
    """Train the best configuration on all data and export it; return the exit status."""
    from automl.workflows.export import chosen, export

    target = Path(output or f"{sweep}-fit")
    if target.exists() and any(target.iterdir()):
        raise UsageError(f"{target} is not empty; name a new folder with --output")
    with opened(store, write=True) as ledger:
        source = ledger.spec(sweep)
        typed = Typed(store, objective, options["ray_address"])
        check_runnable(source, typed, program, "fit")
        function = load_trained(source, objective, program)
        best = chosen(ledger, sweep, trial)
        spec = moved_to(_fit_spec(source, train_time), artifacts)
        if ledger.exists(companion(sweep, FIT)):
            ledger.delete(companion(sweep, FIT))
        spec = prepare(ledger, spec, [best.params])
        options |= {"summary": False, "resume": True}
        options["dispatcher"] = dispatcher_of(source, options["dispatcher"], agents=False)
        if status := run_sweep(spec, ledger, typed, function, **options):
            return status
        files = export(ledger, spec.name, chosen(ledger, spec.name, 0), target, artifacts)
    show_export(best.number, target, files, as_json=False)
    return 0


def _fit_spec(source: SweepSpec, train_time: float | None) -> SweepSpec:
    """The sweep of one trial without early stopping, on validation data too if there is any."""
    data, goals = dict(source.data), source.goals
    if source.workload is not None:
        from workers.workloads import WORKLOADS

        if WORKLOADS.get(source.workload).trains_on_valid:
            data["with_valid"] = True
        else:
            lacks = "has no validation data to add: it trains on training data only"
            say(f"{source.workload} {lacks}", err=True)
    if train_time is not None:
        if source.workload is None:
            raise UsageError(
                "--train-time is for workloads: an objective or a command decides itself "
                "how long it trains"
            )
        goals = tuple(replace(goal, within=train_time) for goal in goals)
    return derived(source, FIT, 1, data=data, goals=goals)
