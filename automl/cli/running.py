"""Running a sweep in this process, with the live view, to its summary and exit status."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import FAILED, INTERRUPTED, NO_SUCCESS
from .common import STORE, emit
from .status import status_object

if TYPE_CHECKING:
    from automl.core.snapshot import Snapshot
    from automl.core.spec import SweepSpec
    from automl.ledger import Ledger


def ray_options(command: Any) -> Any:
    """Where trials run."""
    address = click.option(
        "--ray-address", metavar="ADDR", help="Ray cluster to use, 'auto' to find it."
    )
    where = click.Choice(["ray", "inline"])
    text = "Run trials on Ray workers, or in this process for debugging."
    dispatcher = click.option(
        "--dispatcher", type=where, default="ray", show_default=True, help=text
    )
    return address(dispatcher(command))


def run_sweep(
    spec: SweepSpec,
    ledger: Ledger,
    store: str,
    *,
    objective: Callable[[Any], Any] | None = None,
    resume: bool = False,
    as_json: bool = False,
    **where: Any,
) -> int:
    """Run a sweep of the ledger until it ends; the exit status.

    Args:
        store: as the person gave it, for the commands that the summary names.
        as_json: print how the sweep ended as JSON, instead of the live view and the summary.
        where: `dispatcher` and `ray_address` of `automl.sweeps.run`.
    """
    from automl import sweeps
    from automl.report.console import console
    from automl.report.summary import print_summary
    from automl.report.terminal_view import view

    if as_json:
        snapshot = sweeps.run(spec, ledger=ledger, objective=objective, resume=resume, **where)
        emit(status_object(snapshot))
        return status_of(snapshot)
    with view() as show:
        snapshot = sweeps.run(
            spec, ledger=ledger, objective=objective, on_change=show, resume=resume, **where
        )
        show(snapshot)
    options = "" if store == STORE else f"--store {shlex.quote(store)}"
    print_summary(console(), snapshot, spec.space, options)
    return status_of(snapshot)


def run_quietly(
    spec: SweepSpec,
    ledger: Ledger,
    store: str,
    objective: Callable[[Any], Any] | None,
    silent: bool,
    **where: Any,
) -> int:
    """Run trials that wait in the ledger, without a summary; the exit status."""
    from automl import sweeps
    from automl.report.terminal_view import view

    if silent:
        return status_of(sweeps.run(spec, ledger=ledger, objective=objective, resume=True, **where))
    with view() as show:
        snapshot = sweeps.run(
            spec, ledger=ledger, objective=objective, on_change=show, resume=True, **where
        )
        show(snapshot)
    if snapshot.state == "interrupted":
        options = "" if store == STORE else f" --store {shlex.quote(store)}"
        click.echo(f"interrupted; go on with: automl resume {spec.name}{options}", err=True)
    return status_of(snapshot)


def status_of(snapshot: Snapshot) -> int:
    """The exit status of a sweep that ended so."""
    if snapshot.state == "interrupted":
        return INTERRUPTED
    if snapshot.state != "finished":
        return FAILED
    return 0 if snapshot.best else NO_SUCCESS
