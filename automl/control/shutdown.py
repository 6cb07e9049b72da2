"""How a sweep ends: by its budget, a stop request, a signal or an error.

- If the budget is reached, `automl stop` was called, or the objective cannot work, running trials
  are asked to stop. Trials that are left over become stopped, and the sweep is finished.
- At the first signal, or if the suggester fails, running trials are asked to interrupt. The sweep
  can be resumed.
- At the second signal, or after 30 s, running trials are killed.
"""

import math
import time
from dataclasses import replace
from typing import Final

from automl.core import Leased, Moved, Trial, TrialState
from automl.core.trial import HELD, AgentLease
from automl.dispatch.base import Dispatcher
from automl.errors import AutomlError
from workers.protocol import Ending, Outcome, StopRequest, lost

from .assignments import Assigner
from .journal import Journal
from .outcome_policy import OutcomePolicy
from .signals import StopSignals

GRACE_SECONDS: Final = 30.0  # for trials that were asked to stop


class Shutdown:
    """Asks trials to stop, one or all, and leaves each in the right state.

    Args:
        journal: of the sweep.
        assigner: knows how many slots a trial takes.
        signals: count the signals that ask the sweep to stop.

    Attributes:
        request: how the sweep is ending; None while it goes on.
        reason: why.
    """

    def __init__(self, journal: Journal, assigner: Assigner, signals: StopSignals) -> None:
        self._journal = journal
        self._assigner = assigner
        self._signals = signals
        self._reasons: dict[int, str] = {}  # why running trials were asked to stop
        self._held: set[int] = set()  # trials that people have asked to pause
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self.request: StopRequest | None = None
        self.reason = ""

    def check(self, dispatcher: Dispatcher) -> None:
        """Begin to end the sweep if it must end; kill running trials if they take too long."""
        journal = self._journal
        if self._signals.count and self.request is not StopRequest.INTERRUPT:
            self._begin(StopRequest.INTERRUPT, "interrupted", dispatcher)
        requested = "it was asked to stop" if journal.stop_requested else None
        reason = requested or journal.budget.reason_to_end(journal.now)
        if reason:
            self.end(reason, dispatcher)
        if self._signals.count > 1 or time.monotonic() > self._deadline:
            message = "ended by force, together with the sweep"
            for trial in journal.index.running:
                if trial.lease is None:
                    dispatcher.kill(trial.number, trial.attempts, "preempted", message)
                elif self.request is StopRequest.STOP:
                    self._move(trial, TrialState.STOPPED, "its agent has not ended it in time")

    def ends_before_it_begins(self) -> bool:
        """While there is no dispatcher yet: begin to end the sweep if it was asked to."""
        if self._signals.count:
            self._begin(StopRequest.INTERRUPT, "interrupted", None)
        elif self._journal.stop_requested:
            self._begin(StopRequest.STOP, "it was asked to stop", None)
        return self.request is not None

    def stay(self) -> None:
        """The sweep is finished already, and is held only to answer agents and people."""
        self.request = StopRequest.STOP
        self.reason = "it is finished"

    def reopen(self) -> None:
        """A finished sweep goes on."""
        self.request = None

    def end(self, reason: str, dispatcher: Dispatcher) -> None:
        """Finish the sweep, unless it is ending already."""
        if self.request is None:
            self._begin(StopRequest.STOP, reason, dispatcher)

    def fail(self, error: AutomlError, dispatcher: Dispatcher) -> None:
        """End the sweep by this error, which `finish` raises."""
        self._error = error
        self._begin(StopRequest.INTERRUPT, str(error), dispatcher)

    def stop_trial(
        self, trial: Trial, how: StopRequest, reason: str, dispatcher: Dispatcher
    ) -> None:
        """Ask a running trial to stop."""
        if trial.lease is not None:
            self._ask_agent(trial, trial.lease, str(how), reason)
            return
        self._reasons[trial.number] = reason
        self._journal.then(lambda: dispatcher.stop(trial.number, trial.attempts, how))

    def hold(self, trial: Trial, reason: str, dispatcher: Dispatcher) -> None:
        """Ask a running trial to pause until a person resumes it."""
        if trial.lease is not None:
            self._ask_agent(trial, trial.lease, HELD, reason)
            return
        self._held.add(trial.number)
        self.stop_trial(trial, StopRequest.PAUSE, reason, dispatcher)

    def is_stopping(self, trial: Trial) -> bool:
        """Whether a running trial was asked to stop."""
        return trial.number in self._reasons or (
            trial.lease is not None and trial.lease.asked != ""
        )

    def explain(self, outcome: Outcome) -> Outcome:
        """The outcome of a trial that was asked to stop, with the reason as its message."""
        reason = self._reasons.pop(outcome.trial, "")
        held = outcome.trial in self._held
        self._held.discard(outcome.trial)
        if held and outcome.ending is Ending.PAUSED:
            outcome = replace(outcome, details={**outcome.details, HELD: True})
        if not outcome.message and outcome.ending in (Ending.STOPPED, Ending.PAUSED):
            return replace(outcome, message=reason)
        return outcome

    def take_over(self, trial: Trial) -> None:
        """A trial that ran when an earlier controller was killed; it may have been the cause.

        So the attempt counts as one whose worker was lost: after `max_retries` the trial fails.
        """
        journal = self._journal
        policy = OutcomePolicy(journal.spec.goals, journal.spec.max_retries)
        seconds = max(0.0, journal.now - journal.begun(trial))
        assignment = self._assigner.assignment(trial)
        outcome = lost(assignment, "its controller was lost", seconds=seconds)
        journal.apply(policy.decide(trial, outcome, journal.now))
        journal.budget.add_earlier(trial, seconds, self._assigner.slots(trial.params))

    def finish(self) -> None:
        """Nothing runs any more: close the journal, with final states unless it can be resumed.

        Raises:
            AutomlError: the error that has ended the sweep.
        """
        if self._error is not None:
            raise self._error
        if self.request is StopRequest.INTERRUPT:
            self._journal.close("interrupted")
            return
        now = self._journal.now
        for trial in self._journal.trials:
            if not trial.state.finished and trial.lease is None:
                event = Moved(trial.number, TrialState.STOPPED, "the sweep has ended", now)
                self._journal.apply(event)
        self._journal.close("finished")

    def abandon(self, state: str) -> None:
        """The controller fails: record that it is gone, if the ledger can still be written to."""
        try:
            for trial in self._journal.index.running:
                if trial.lease is None:
                    self._move(trial, TrialState.INTERRUPTED, "its controller failed")
            self._journal.close(state)
        except AutomlError:
            return

    def _ask_agent(self, trial: Trial, lease: AgentLease, request: str, reason: str) -> None:
        """Let the agent of a trial know at its next report; other processes see it too."""
        new_lease = replace(lease, asked=request, reason=reason)
        event = Leased(trial.number, trial.attempts, **vars(new_lease), at=self._journal.now)
        self._journal.apply(event)

    def _move(self, trial: Trial, state: TrialState, reason: str) -> None:
        journal = self._journal
        now = journal.now
        seconds = max(0.0, now - journal.begun(trial))
        journal.apply(Moved(trial.number, state, reason, now, seconds))

    def _begin(self, how: StopRequest, reason: str, dispatcher: Dispatcher | None) -> None:
        self.request = how
        self.reason = reason
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._journal.note("end", reason)
        if dispatcher is None:
            return  # nothing runs
        for trial in self._journal.index.running:
            if trial.lease is None or how is StopRequest.STOP:  # agents go on without a controller
                self.stop_trial(trial, how, reason, dispatcher)
