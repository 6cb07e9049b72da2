"""The loop of a sweep, and how its parts are wired: poll, apply, decide, append, act, fill."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final

from automl.core import Snapshot, SweepEvent, SweepSpec, Trial, TrialState, ranking, without_held
from automl.dispatch._make import has_own_gpus
from automl.dispatch.base import Dispatcher
from automl.dispatch.gpus import GpuLocks
from automl.dispatch.inline import AgentsDispatcher
from automl.errors import StoreError, StoreFailure, UsageError
from automl.ledger import Hold, Ledger
from automl.ledger.database import HeldError
from automl.stopping.base import Stopper
from workers.artifacts import forget_checkpoints, location_of
from workers.files import Folder
from workers.protocol import DISPOSABLE, Asked, Event, Outcome, Report, StopRequest

from .beginning import (
    Growth,
    artifacts_of,
    stopper_of,
    suggester_of,
    suggestion_queue,
    with_artifacts,
    with_known_space,
)
from .machine import MemoryGuard, StopSignals, lock_gpus, visible
from .outcomes import COMMIT_SECONDS, Journal, Shutdown, ended
from .scheduler import Assigner, Scheduler
from .steering import Requests

MIN_POLL_SECONDS: Final = 0.005  # also while a free slot waits for a suggestion


class Controller:
    """Runs one sweep. Used from one thread.

    Args:
        journal: of the sweep.
        scheduler: decides what runs next.
        shutdown: decides when and how the sweep ends.
        stopper: decides after each report.
        guard: adds the estimated memory to outcomes.
        checkpoints: cleans up after each attempt.
        growth: keeps the space that trials ask for.
        can_pause: whether a trial can go on from a checkpoint.
    """

    def __init__(
        self,
        journal: Journal,
        scheduler: Scheduler,
        shutdown: Shutdown,
        stopper: Stopper,
        guard: MemoryGuard,
        checkpoints: CheckpointCleanup,
        growth: Growth,
        *,
        can_pause: bool,
    ) -> None:
        self._journal, self._scheduler, self._shutdown = journal, scheduler, shutdown
        self._stopper, self._guard = stopper, guard
        self._checkpoints, self._growth = checkpoints, growth
        self._requests = Requests(journal, scheduler, shutdown, self._take_in, can_pause=can_pause)

    def run(self, start: Callable[[], Dispatcher]) -> None:
        """Run the sweep until it ends.

        Args:
            start: makes the dispatcher, while suggestions are already being made.

        Raises:
            AutomlError: the sweep cannot go on; it can be resumed.
        """
        journal, shutdown = self._journal, self._shutdown
        dispatcher: Dispatcher | None = None
        try:
            self._scheduler.prepare()
            dispatcher = start()
            journal.attach(dispatcher)
            while True:
                shutdown.check()  # decide whether the sweep ends
                self._scheduler.fill()  # and which trials begin
                self._requests.serve()
                journal.flush()  # append, then act
                if self._is_over():
                    break
                dispatcher.poll(self._handle, self._timeout())  # apply, and decide
            shutdown.finish(self._scheduler.reason_for_none)
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "interrupted"
            shutdown.abandon(state, str(error) or state)
            raise
        finally:
            if dispatcher is not None:
                dispatcher.close()

    def attend(self, *, finished: bool, stop: str = "") -> None:
        """Answer the requests that wait, for a sweep without a controller, and begin nothing else.

        Args:
            finished: the sweep is finished, and stays so unless its budget is raised.
            stop: why the sweep ends; "" if it does not.
        """
        journal, shutdown = self._journal, self._shutdown
        try:
            journal.attach(journal.dispatcher)  # it has no slots
            if finished:
                shutdown.stay()
            self._scheduler.prepare()
            shutdown.end(stop)
            while self._requests.serve():
                journal.flush()
                shutdown.check()
            ends = bool(finished or stop) and shutdown.request is not None
            if ends or self._is_over():
                shutdown.finish(self._scheduler.reason_for_none)
            elif journal.state.closed != "interrupted":
                journal.close("interrupted")
            journal.flush()
        except BaseException as error:
            shutdown.abandon("interrupted", str(error))
            raise

    def _is_over(self) -> bool:
        if self._shutdown.request is StopRequest.INTERRUPT:  # agents go on without a controller
            return all(trial.lease is not None for trial in self._journal.state.index.running)
        if self._journal.state.index.running:
            return False
        if self._shutdown.request is not None or not self._scheduler.is_done:
            return self._shutdown.request is not None
        # Without slots nobody has tried yet to resume a paused trial.
        return self._journal.dispatcher.num_slots > 0 or self._scheduler.next_trial() is None

    def _timeout(self) -> float:
        if self._scheduler.wants_proposals() or self._journal.state.requests:
            return MIN_POLL_SECONDS
        left = self._journal.state.seconds_left(self._journal.now)
        return min(self._journal.dispatcher.patience, max(left, MIN_POLL_SECONDS))

    def _handle(self, event: Event | None) -> None:
        """Take in an event; None if only time has passed while an attempt runs inside `poll`."""
        if event is None:
            self._journal.flush(0.0 if self._requests.serve() else COMMIT_SECONDS)
            return
        self._shutdown.check()  # it changes the meaning of an outcome
        self._take_in(event)
        if self._journal.dispatcher.serial:
            self._shutdown.check()
            self._journal.flush(COMMIT_SECONDS)

    def _take_in(self, event: Event) -> None:
        """Apply an event of a worker or an agent, and decide what follows."""
        if isinstance(event, Outcome):
            self._on_outcome(event)
        elif isinstance(event, Asked):
            self._on_asked(event)
        elif (trial := self._journal.apply(event)) is not None and isinstance(event, Report):
            self._on_report(trial)

    def _on_asked(self, event: Asked) -> None:
        if problem := self._growth.conflict(event):  # with a trial beside it
            dispatcher = self._journal.dispatcher
            key = (event.trial, event.attempt)
            self._journal.then(lambda: dispatcher.kill(*key, "crashed", problem))
        else:
            self._growth.follow(self._journal.apply(event))

    def _on_outcome(self, outcome: Outcome) -> None:
        journal = self._journal
        trial = journal.trials[outcome.trial]
        if trial.state is not TrialState.RUNNING or trial.attempts != outcome.attempt:
            return  # late: the attempt is over already
        outcome = self._shutdown.explain(outcome)
        outcome = self._guard.add_estimate(outcome, trial.params)
        stopping = self._shutdown.request
        after = journal.apply(ended(journal.spec, trial, outcome, journal.now, stopping))
        if after is None:
            return
        self._growth.follow(after)
        self._shutdown.end_after(after)
        journal.then(lambda: self._checkpoints.clean(after, journal.trials))

    def _on_report(self, trial: Trial) -> None:
        journal = self._journal
        whole = trial.number == 0 or trial.replicate_of is not None  # runs are to be comparable
        if whole or self._shutdown.is_stopping(trial):
            return
        self._scheduler.update_stopper()
        trials = journal.state.visible_trials()
        decision = journal.dispatcher.charged(lambda: self._stopper.decide(trial, trials))
        if decision.action != "continue":
            journal.note(decision.action, decision.reason, trial.number)
            self._shutdown.stop_trial(trial, StopRequest(decision.action), decision.reason)


class CheckpointCleanup:
    """Deletes the checkpoints of failed and stopped trials, but of the best.

    In the store at once; at the location of the sweep's artifacts in a thread, so nobody waits.

    Args:
        spec: of the sweep.
        files: the sweep's folder.
        artifacts: location of the sweep's; "" if its trials keep their files in the store.
    """

    def __init__(self, spec: SweepSpec, files: Folder, artifacts: str = "") -> None:
        self._spec, self._files, self._artifacts = spec, files, artifacts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="automl-artifacts")
        self._kept: set[int] = set()  # trials that have checkpoints, or may have some elsewhere

    def clean(self, changed: Trial, trials: Sequence[Trial]) -> None:
        """Clean up after an attempt of `changed`."""
        if self._artifacts or self._checkpoints(changed.number):
            self._kept.add(changed.number)
        over = {n for n in self._kept if trials[n].state in (TrialState.STOPPED, TrialState.FAILED)}
        if over:
            spec = self._spec
            best = ranking.pareto(trials, spec.goals, spec.constraints)
            for number in over - {trial.number for trial in best}:
                self._delete(number)

    def close(self) -> None:
        """Wait for what is being deleted."""
        self._thread.shutdown()

    def _checkpoints(self, number: int) -> list[Folder]:
        """The folders of a trial's checkpoints, and of other files that its command writes."""
        folder = self._files / "trials" / str(number)
        with contextlib.suppress(OSError, StoreError):  # a link is in its place
            return [folder / name for name in folder.names() if name in DISPOSABLE]
        return []

    def _delete(self, number: int) -> None:
        self._kept.discard(number)
        with contextlib.suppress(OSError, StoreError):
            for folder in self._checkpoints(number):
                folder.remove()
        if self._artifacts:
            self._thread.submit(forget_checkpoints, location_of(self._artifacts, number))


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
) -> Snapshot:
    """Like `automl.sweeps.run`, on a dispatcher of this kind.

    Args:
        start: makes the dispatcher, while suggestions are already being made.
        local: whether trials run on this machine.
    """
    hold = ledger.hold(spec.name)
    try:
        if hold.state.trials and not resume:
            raise UsageError(
                f"sweep {spec.name!r} has run before: resume it, or choose another name"
            )
        journal = Journal(hold, lambda: hold.seconds)
        spec = with_known_space(journal, with_artifacts(spec, hold.state.spec))
        hold.commit()
        with (
            StopSignals(interrupts=kind.serial) as signals,
            _wired(
                spec,
                ledger,
                hold,
                kind,
                signals,
                local=local,
                on_change=on_change,
            ) as (controller, snapshot),
            closing(GpuLocks(spec.name)) as locks,
        ):

            def start_dispatcher() -> Dispatcher:
                gpus: list[str] = []
                if has_own_gpus(spec, kind, local=local):
                    gpus = lock_gpus(spec, locks, journal.note, serial=kind.serial)
                # to wait for room on a cluster may take a minute
                with signals.raising(), visible(gpus):
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
    try:
        hold = ledger.hold(sweep, brief=True)
    except HeldError:
        return False
    try:
        parts = (spec, ledger, hold, AgentsDispatcher, StopSignals())
        with _wired(*parts, local=True, brief=True) as (controller, _):
            controller.attend(finished=hold.earlier_state == "finished", stop=stop)
    finally:
        ledger.release(sweep)
    return True


@contextmanager
def _wired(
    spec: SweepSpec,
    ledger: Ledger,
    hold: Hold,
    kind: type[Dispatcher],
    signals: StopSignals,
    *,
    local: bool,
    on_change: Callable[[Snapshot], None] | None = None,
    brief: bool = False,
) -> Iterator[tuple[Controller, Callable[[], Snapshot]]]:
    """A controller with all its parts, which end with the context; and the sweep as it is now."""
    can_pause = spec.workload is not None or spec.resumable or kind.keeps_paused
    stopper = stopper_of(spec, can_pause=can_pause)
    files = ledger.files(spec.name)
    # A controller for a moment trains nothing, so it uses no location that the ledger names.
    artifacts = "" if brief else artifacts_of(spec)
    assigner = Assigner(spec, files, artifacts)
    # While agents hold trials, time passes without a controller.
    leases = (trial.lease.until for trial in hold.state.trials if trial.lease is not None)
    seconds = hold.seconds + hold.absence(max(leases, default=0.0))

    def status() -> dict[str, Any]:
        """What is not in the events, for those who watch the sweep."""
        at = suggestions.prospects[-1] if suggestions.prospects else None
        return {
            "num_slots": journal.dispatcher.num_slots + len(journal.state.index.leased),
            "busy_slots": journal.state.busy_slots,
            "dashboard": journal.dispatcher.dashboard,
            "suggesting": suggestions.state,
            "gain": at.gain if at else None,
            "error": at.error if at else None,
            "suggestion_seconds": tuple(suggestions.seconds)[-NUM_STORED_SECONDS:],
            "brief": brief,
        }

    def snapshot(events: Sequence[SweepEvent] = ()) -> Snapshot:
        return Snapshot.of(
            hold.state,
            hold.state.closed if journal.closed else "running",
            journal.now,
            events=events,
            **status(),
        )

    with (
        closing(
            suggestion_queue(spec, kind, lambda message: journal.note("fallback", message))
        ) as suggestions,
        closing(MemoryGuard(spec, kind.estimates, local)) as guard,
        closing(CheckpointCleanup(spec, files, artifacts)) as cleanup,
    ):
        journal = Journal(
            hold,
            lambda: seconds,
            status=status,
            observe=lambda trial: stopper.observe(without_held(trial)),
            show=lambda events: on_change and on_change(snapshot(events)),
        )
        shutdown = Shutdown(journal, hold.taken, signals)
        scheduler = Scheduler(
            journal,
            suggestions,
            stopper,
            assigner,
            guard,
            shutdown,
            make_suggester=suggester_of,
            starts_fast=kind.starts_fast,
        )
        controller = Controller(
            journal,
            scheduler,
            shutdown,
            stopper,
            guard,
            cleanup,
            Growth(journal, scheduler.respecify),
            can_pause=can_pause,
        )
        yield controller, snapshot
