"""The loop of a sweep, and how it ends: poll, apply, decide, append, act, fill."""

from collections.abc import Callable
from typing import Final

from automl.core import Trial, TrialState
from automl.dispatch.base import Dispatcher
from automl.stopping.base import Stopper
from workers.protocol import Asked, Event, Outcome, Report, StopRequest

from .artifacts import CheckpointCleanup
from .beginning import Growth
from .gpu_share import GpuShare
from .journal import COMMIT_SECONDS, Journal
from .memory_guard import MemoryGuard
from .outcomes import ended
from .scheduler import Scheduler
from .shutdown import Shutdown
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
        gpus: leased before the dispatcher is made.
        checkpoints: cleans up after each attempt.
        requests: of agents and people.
        growth: keeps the space that trials ask for.
    """

    def __init__(
        self,
        journal: Journal,
        scheduler: Scheduler,
        shutdown: Shutdown,
        stopper: Stopper,
        guard: MemoryGuard,
        gpus: GpuShare,
        checkpoints: CheckpointCleanup,
        requests: Requests,
        growth: Growth,
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._shutdown = shutdown
        self._stopper = stopper
        self._guard = guard
        self._gpus = gpus
        self._checkpoints = checkpoints
        self._requests = requests
        self._growth = growth

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
            if self._gpus.acquire(journal, shutdown):
                with self._gpus.visible():
                    dispatcher = start()
                journal.attach(dispatcher)
                while True:
                    shutdown.check()  # decide whether the sweep ends
                    self._scheduler.fill()  # and which trials begin
                    self._requests.serve(self._take_in)
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

    def attend(self, dispatcher: Dispatcher, *, finished: bool, stop: str = "") -> None:
        """Answer the requests that wait, for a sweep without a controller, and begin nothing else.

        Args:
            dispatcher: without workers.
            finished: the sweep is finished, and stays so unless its budget is raised.
            stop: why the sweep ends; "" if it does not.
        """
        journal, shutdown = self._journal, self._shutdown
        try:
            journal.attach(dispatcher)
            if finished:
                shutdown.stay()
            self._scheduler.prepare()
            shutdown.end(stop)
            while self._requests.serve(self._take_in):
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
        if self._scheduler.wants_proposals() or self._requests.waiting:
            return MIN_POLL_SECONDS
        left = self._journal.state.use.seconds_left(self._journal.now)
        return min(self._journal.dispatcher.patience, max(left, MIN_POLL_SECONDS))

    def _handle(self, event: Event | None) -> None:
        """Take in an event; None if only time has passed while an attempt runs inside `poll`."""
        if event is None:
            if self._requests.serve(self._take_in):
                self._journal.flush()
            self._journal.keep_up()
            return
        self._shutdown.check()  # it changes the meaning of an outcome
        self._take_in(event)
        if self._journal.dispatcher.serial:
            self._shutdown.check()
            # The outcome of a short attempt is committed together with the next trial.
            self._journal.settle(
                at_once=isinstance(event, Outcome) and event.seconds > COMMIT_SECONDS
            )

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
        journal.then(lambda: self._clean_checkpoints(after))

    def _clean_checkpoints(self, trial: Trial) -> None:
        self._checkpoints.clean(trial, self._journal.trials)
        for problem in self._checkpoints.problems():
            self._journal.note("artifacts", f"checkpoints could not be deleted: {problem}")

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
