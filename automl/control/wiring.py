"""Wires the parts of a controller, and runs it on a sweep that it holds."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from automl.core import Snapshot, SweepSpec
from automl.dispatch._make import make_gpu_locks
from automl.dispatch.agents import AgentsDispatcher
from automl.dispatch.base import Dispatcher
from automl.errors import StoreError, StoreFailure, UsageError
from automl.ledger import Ledger, Recorder
from automl.ledger.database import HeldError

from .artifacts import CheckpointCleanup, artifacts_of, with_artifacts
from .assignments import Assigner
from .beginning import Growth, with_known_space
from .controller import Controller
from .ending import EndOfSweep
from .gpu_share import GpuShare
from .journal import Journal, SweepWriter
from .memory_guard import MemoryGuard
from .plugins import Plugins
from .scheduler import Scheduler
from .shutdown import Shutdown
from .signals import StopSignals
from .steering import Agents, Requests, Steering, SweepCommands


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
    recorder = ledger.acquire(spec.name)
    try:
        state = recorder.state
        if state.trials and not resume:
            raise UsageError(
                f"sweep {spec.name!r} has run before: resume it, or choose another name"
            )
        writer = SweepWriter(recorder, lambda: recorder.seconds if state.trials else 0.0)
        spec = with_known_space(writer, with_artifacts(spec, state.spec))
        recorder.commit()
        with (
            StopSignals(interrupts=kind.serial) as signals,
            _wired(
                spec,
                ledger,
                recorder,
                kind,
                plugins,
                signals,
                local=local,
                on_change=on_change,
            ) as controller,
        ):

            def start_dispatcher() -> Dispatcher:
                with signals.raising():  # to wait for room on a cluster may take a minute
                    dispatcher = start()
                signals.install()  # Ray has replaced the handlers
                return dispatcher

            return controller.run(start_dispatcher)
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
        recorder = ledger.acquire(sweep, brief=True)
    except HeldError:
        return False
    kind = AgentsDispatcher
    try:
        with _wired(
            spec, ledger, recorder, kind, plugins, StopSignals(), local=True, brief=True
        ) as controller:
            finished = recorder.earlier_state == "finished"
            controller.attend(kind(), finished=finished, stop=stop)
    finally:
        ledger.release(sweep)
    return True


@contextmanager
def _wired(
    spec: SweepSpec,
    ledger: Ledger,
    recorder: Recorder,
    kind: type[Dispatcher],
    plugins: Plugins,
    signals: StopSignals,
    *,
    local: bool,
    on_change: Callable[[Snapshot], None] | None = None,
    brief: bool = False,
) -> Iterator[Controller]:
    """A controller with all its parts, which end with the context."""
    stopper = plugins.make_stopper(
        spec, can_pause=spec.workload is not None or spec.resumable or kind.keeps_paused
    )
    files = ledger.files(spec.name)
    # A controller for a moment trains nothing, so it uses no location that the ledger names.
    artifacts = None if brief else artifacts_of(spec)
    assigner = Assigner(spec, files, artifacts)

    def note(message: str) -> None:
        journal.note("fallback", message)

    def respecify(changed: SweepSpec) -> None:
        suggestions.restrict(make=partial(plugins.make_suggester, changed))

    def grown(changed: SweepSpec) -> None:
        respecify(changed)
        commands.respace()

    with (
        closing(plugins.make_queue(spec, kind, note)) as suggestions,
        closing(MemoryGuard(spec, kind.estimates, local)) as guard,
        closing(make_gpu_locks(spec, kind, local=local)) as gpu_locks,
        closing(CheckpointCleanup(spec, files, artifacts)) as cleanup,
    ):
        journal = Journal(
            recorder,
            suggestions,
            seconds=_seconds(recorder),
            observe=stopper.observe,
            on_change=on_change,
            brief=brief,
        )
        ending = EndOfSweep(recorder.state, recorder.taken, suggestions, assigner)
        commands = SweepCommands(journal, suggestions, stopper)
        shutdown = Shutdown(journal, ending, signals)
        scheduler = Scheduler(
            journal,
            suggestions,
            stopper,
            assigner,
            guard,
            commands,
            ending,
            shutdown,
            starts_fast=kind.starts_fast,
        )
        agents = Agents(journal, scheduler, shutdown, assigner, ending)
        steering = Steering(journal, shutdown, stopper, respecify)
        yield Controller(
            journal,
            scheduler,
            shutdown,
            stopper,
            guard,
            GpuShare(spec, gpu_locks, serial=kind.serial),
            cleanup,
            ending,
            Requests(journal, commands, agents, steering),
            Growth(journal, grown),
        )


def _seconds(recorder: Recorder) -> float:
    """Seconds of the sweep so far: while agents hold trials, time passes without a controller."""
    state = recorder.state
    if not state.trials:
        return 0.0
    ends = (trial.lease.until for trial in state.trials if trial.lease is not None)
    return recorder.seconds + recorder.absence(max(ends, default=0.0))
