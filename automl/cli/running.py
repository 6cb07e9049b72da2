"""Runs a sweep in this process, with the live view, and returns its exit status."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from automl.errors import UsageError

from . import FAILED, INTERRUPTED, NO_SUCCESS
from .common import STORE, emit, say
from .status import status_object

if TYPE_CHECKING:
    from automl.core import Snapshot, SweepSpec
    from automl.ledger import Ledger


def check_runnable(spec: SweepSpec, objective: str | None) -> None:
    """Check that a stored sweep has what it needs to run.

    Raises:
        UsageError: the objective is missing, or the sweep has a workload instead.
        DataError: the data of the workload is missing.
    """
    if spec.workload is None and objective is None:
        raise UsageError(
            f"sweep {spec.name} tunes a function of your own: name it with --objective FILE:NAME"
        )
    if spec.workload is not None:
        from workers.workloads import WORKLOADS

        if objective is not None:
            raise UsageError(
                f"sweep {spec.name} tunes the workload {spec.workload}: leave --objective out"
            )
        WORKLOADS.get(spec.workload).check(spec.data, spec.fixed)


def run_sweep(
    spec: SweepSpec,
    ledger: Ledger,
    store: str,
    objective: Callable[[Any], Any] | None,
    *,
    summary: bool = True,
    as_json: bool = False,
    **run_options: Any,
) -> int:
    """Run a sweep of the ledger until it ends, and return the exit status.

    Args:
        store: as the user wrote it, for the commands in the summary.
        summary: print the final status or, if it is False, only how to resume.
        as_json: print the status as JSON, without the live view.
        run_options: `dispatcher`, `ray_address` and `resume` of `automl.sweeps.run`.
    """
    from automl import sweeps
    from automl.report.console import console
    from automl.report.summary import print_summary
    from automl.report.terminal_view import view

    options = "" if store == STORE else f"--store {shlex.quote(store)}"
    if as_json:
        snapshot = sweeps.run(spec, ledger=ledger, objective=objective, **run_options)
        if summary:
            emit(status_object(snapshot))
        return _exit_status(snapshot)
    with view() as show:
        snapshot = sweeps.run(
            spec, ledger=ledger, objective=objective, on_change=show, **run_options
        )
        show(snapshot)
    if summary:
        print_summary(console(), snapshot, spec.known_space, options)
    elif snapshot.state == "interrupted":
        command = f"automl resume {spec.name} {options}".strip()
        say(f"interrupted; continue with: {command}", err=True)
    return _exit_status(snapshot)


def _exit_status(snapshot: Snapshot) -> int:
    if snapshot.state == "interrupted":
        return INTERRUPTED
    if snapshot.state != "finished":
        return FAILED
    return 0 if snapshot.best else NO_SUCCESS
