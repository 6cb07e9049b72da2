"""Runs a sweep in this process, with the live view, and returns its exit status."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from automl.control.signals import SafeEnd
from automl.core.text import Typed, told_how_to_resume
from automl.errors import UsageError

from . import FAILED, INTERRUPTED, NO_SUCCESS
from .common import emit, opened, say
from .looking import status_object

if TYPE_CHECKING:
    from automl.core import Snapshot, SweepSpec
    from automl.ledger import Ledger

    from .program import Program

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
    lacks_command = bool(spec.command) and program is None
    if lacks_command or (spec.workload is None and typed.objective is None and program is None):
        what = "runs a command, which is never read from the store; type it:"
        if not lacks_command:
            what = "tunes a function of your own: name it with --objective FILE:NAME, as in"
        raise UsageError(f"sweep {spec.name} {what} {typed.line(spec, verb=verb)}")
    if spec.workload is not None:
        from workers.workloads import WORKLOADS

        if typed.objective is not None or program is not None:
            given = "--objective" if program is None else "the command after --"
            raise UsageError(
                f"sweep {spec.name} tunes the workload {spec.workload}: leave {given} out"
            )
        WORKLOADS.get(spec.workload).check(spec.data, spec.fixed)


def wait_for_lost_controller(store: str, sweep: str) -> None:
    """Wait while a sweep seems to run: its controller may have been lost with its machine.

    Such a controller counts as dead `STALE_SECONDS` after its last sign of life. If it lives,
    whoever wants the sweep is refused after this.
    """
    from automl.ledger.hold import STALE_SECONDS

    deadline = time.monotonic() + STALE_SECONDS + LOOK_SECONDS
    with opened(store) as ledger:
        announced = False
        while ledger.snapshot(sweep).state == "running" and time.monotonic() < deadline:
            if not announced:
                say(
                    f"{sweep} seems to run; this command waits until its controller is gone",
                    err=True,
                )
                announced = True
            time.sleep(LOOK_SECONDS)


def dispatcher_of(spec: SweepSpec, given: str | None, *, agents: bool = True) -> str:
    """The dispatcher to train with: the one that was typed, else the one that ran it last.

    Args:
        spec: of the sweep.
        given: that was typed.
        agents: whether agents may go on without being named; they ask for one sweep only.
    """
    last = spec.dispatcher if agents or spec.dispatcher != "agents" else ""
    return given or last or "auto"


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
    from automl import sweeps
    from automl.report import confirmations
    from automl.report.console import console
    from automl.report.summary import print_summary
    from automl.report.terminal_view import view

    again = typed.line(spec)
    shown = nullcontext(_unseen) if as_json else view()
    with SafeEnd(), told_how_to_resume(again), shown as show:
        snapshot = sweeps.run(
            spec, ledger=ledger, objective=objective, on_change=show, **run_options
        )
        show(snapshot)
    if as_json:
        if summary:
            emit(status_object(snapshot))
        return _exit_status(snapshot)
    if summary:
        again_run = confirmations.read(ledger, snapshot)
        space = (snapshot.spec or spec).known_space  # it may have grown
        print_summary(console(), snapshot, space, typed, again_run)
    elif snapshot.state == "interrupted":
        say(f"interrupted; continue with: {again}", err=True)
    return _exit_status(snapshot)


def _unseen(snapshot: Snapshot) -> None:
    """Show nothing."""


def _exit_status(snapshot: Snapshot) -> int:
    if snapshot.state == "interrupted":
        return INTERRUPTED
    if snapshot.state != "finished":
        return FAILED
    return 0 if snapshot.best else NO_SUCCESS
