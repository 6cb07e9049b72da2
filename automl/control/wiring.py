"""Wires the parts of a controller, and runs it on a sweep that it holds."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from automl.core import Snapshot, SweepEvent, SweepSpec
from automl.core.trial import without_held
from automl.dispatch._make import make_gpu_locks
from automl.dispatch.agents import AgentsDispatcher
from automl.dispatch.base import Dispatcher
from automl.errors import StoreError, StoreFailure, UsageError
from automl.ledger import Hold, Ledger
from automl.ledger.database import HeldError

from .artifacts import CheckpointCleanup, artifacts_of, with_artifacts
from .assignments import Assigner
from .beginning import Growth, with_known_space
from .controller import Controller
from .gpu_share import GpuShare
from .journal import Journal
from .memory_guard import MemoryGuard
from .plugins import Plugins
from .scheduler import Scheduler
from .shutdown import Shutdown
from .signals import StopSignals
from .steering import Requests

NUM_STORED_SECONDS: Final = 20  # of the latest suggestions, in the status of each commit


def conduct(
    spec: SweepSpec,
    ledger: Ledger,
    kind: type[Dispatcher],
    start: Callable[[], Dispatcher],
    *,
    on_change: Callable[[Snapshot], None] | None = None,
    resume: bool = False,
    local: bool = True,
    plugins: Plugins | None = None,
) -> Snapshot:
    """Like `automl.sweeps.run`, on a dispatcher of this kind.

    Args:
        start: makes the dispatcher, while suggestions are already being made.
        local: whether trials run on this machine.
    """
    plugins = plugins or Plugins.of(spec)
    hold = ledger.hold(spec.name)
    try:
        state = hold.state
        if state.trials and not resume:
            raise UsageError(
                f"sweep {spec.name!r} has run before: resume it, or choose another name"
            )
        journal = Journal(hold, lambda: hold.seconds if state.trials else 0.0)
        spec = with_known_space(journal, with_artifacts(spec, state.spec))
        hold.commit()
        with (
            StopSignals(interrupts=kind.serial) as signals,
            _wired(
                spec,
                ledger,
                hold,
                kind,
                plugins,
                signals,
                local=local,
                on_change=on_change,
            ) as (controller, snapshot),
        ):

            def start_dispatcher() -> Dispatcher:
                with signals.raising():  # to wait for room on a cluster may take a minute
                    dispatcher = start()
                signals.install()  # Ray has replaced the handlers
                return dispatcher

            controller.run(start_dispatcher)
            return snapshot()
        ledger.release(spec.name)  # else the sweep would seem to run
        return ledger.snapshot(spec.name)  # after the second signal
    except StoreError as error:
        raise StoreFailure(str(error)) from error
    except OSError as error:  # no space or inodes for a trial's folder, no more processes
        raise StoreFailure(f"the system refuses what the sweep needs: {error}") from error
    finally:
        ledger.release(spec.name)


def attend(ledger: Ledger, sweep: str, *, stop: str = "") -> bool:
    """Hold a sweep without a controller for a moment, to answer the requests that wait.

    Args:
        stop: why the sweep ends now; "" if it goes on.

    Returns:
        False if another process holds the sweep.

    Raises:
        UsageError: its suggester or stopper is unknown here, such as a class of the user's own.
    """
    spec = ledger.spec(sweep)
    plugins = Plugins.of(spec)
    try:
        hold = ledger.hold(sweep, brief=True)
    except HeldError:
        return False
    try:
        with (
            closing(AgentsDispatcher()) as dispatcher,
            _wired(
                spec,
                ledger,
                hold,
                AgentsDispatcher,
                plugins,
                StopSignals(),
                local=True,
                brief=True,
            ) as (controller, _),
        ):
            finished = hold.earlier_state == "finished"
            controller.attend(dispatcher, finished=finished, stop=stop)
    finally:
        ledger.release(sweep)
    return True


@contextmanager
def _wired(
    spec: SweepSpec,
    ledger: Ledger,
    hold: Hold,
    kind: type[Dispatcher],
    plugins: Plugins,
    signals: StopSignals,
    *,
    local: bool,
    on_change: Callable[[Snapshot], None] | None = None,
    brief: bool = False,
) -> Iterator[tuple[Controller, Callable[[], Snapshot]]]:
    """A controller with all its parts, which end with the context; and the sweep as it is now."""
    can_pause = spec.workload is not None or spec.resumable or kind.keeps_paused
    stopper = plugins.make_stopper(spec, can_pause=can_pause)
    files = ledger.files(spec.name)
    # A controller for a moment trains nothing, so it uses no location that the ledger names.
    artifacts = None if brief else artifacts_of(spec)
    assigner = Assigner(spec, files, artifacts)
    seconds = _seconds(hold)

    def status() -> dict[str, Any]:
        """What is not in the events, for those who watch the sweep."""
        at = suggestions.prospects[-1] if suggestions.prospects else None
        return {
            **journal.workers(),
            "suggesting": suggestions.state,
            "gain": at.gain if at else None,
            "error": at.error if at else None,
            "suggestion_seconds": tuple(suggestions.seconds)[-NUM_STORED_SECONDS:],
            "brief": brief,
        }

    def snapshot(events: Sequence[SweepEvent] = ()) -> Snapshot:
        shown = hold.state.closed if journal.closed else "running"
        return Snapshot.of(hold.state, shown, journal.now, events=events, **status())

    def show(events: Sequence[SweepEvent]) -> None:
        if on_change is not None:
            on_change(snapshot(events))

    with (
        closing(
            plugins.make_queue(spec, kind, lambda message: journal.note("fallback", message))
        ) as suggestions,
        closing(MemoryGuard(spec, kind.estimates, local)) as guard,
        closing(make_gpu_locks(spec, kind, local=local)) as gpu_locks,
        closing(CheckpointCleanup(spec, files, artifacts)) as cleanup,
    ):
        journal = Journal(
            hold,
            lambda: seconds,
            status=status,
            observe=lambda trial: stopper.observe(without_held(trial)),
            show=show,
        )
        shutdown = Shutdown(journal, hold.taken, signals)
        scheduler = Scheduler(
            journal,
            suggestions,
            stopper,
            assigner,
            guard,
            shutdown,
            make_suggester=plugins.make_suggester,
            starts_fast=kind.starts_fast,
        )
        controller = Controller(
            journal,
            scheduler,
            shutdown,
            stopper,
            guard,
            GpuShare(spec, gpu_locks, serial=kind.serial),
            cleanup,
            Requests(journal, scheduler, shutdown, assigner, can_pause=can_pause),
            Growth(journal, scheduler.respecify),
        )
        yield controller, snapshot


def _seconds(hold: Hold) -> float:
    """Seconds of the sweep so far: while agents hold trials, time passes without a controller."""
    state = hold.state
    if not state.trials:
        return 0.0
    ends = (trial.lease.until for trial in state.trials if trial.lease is not None)
    return hold.seconds + hold.absence(max(ends, default=0.0))
