"""How a sweep ends: by its budget, a stop request, a signal or an error.

- If there is a reason to end (`ending`), running trials are asked to stop. Trials that are left
  over become stopped, and the sweep is finished.
- At the first signal, or if the suggester fails, running trials are asked to interrupt. The sweep
  can be resumed.
- At the second signal, or after 30 s, running trials are killed.
"""

import math
import time
from dataclasses import replace

from automl.core import Trial, TrialState
from automl.core.events import GRACE_SECONDS
from automl.errors import AutomlError
from workers.protocol import Ending, Outcome, StopRequest

from .ending import reason_of_failures, reason_to_end
from .journal import Journal
from .signals import StopSignals


class Shutdown:
    """Asks trials to stop, one or all, and leaves each in the right state.

    Args:
        journal: of the sweep.
        taken: number of the last record when the sweep was taken.
        signals: count the signals that ask the sweep to stop.

    Attributes:
        request: how the sweep is ending; None while it goes on.
        reason: why.
    """

    def __init__(self, journal: Journal, taken: int, signals: StopSignals) -> None:
        self._journal = journal
        self._taken = taken
        self._began = journal.now
        self._signals = signals
        self._reasons: dict[int, str] = {}  # why running trials were asked to stop
        self._held: set[int] = set()  # trials that people have asked to pause
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self.request: StopRequest | None = None
        self.reason = ""

    def check(self) -> None:
        """Begin to end the sweep if it must end; kill running trials if they take too long."""
        journal = self._journal
        if self._signals.count and self.request is not StopRequest.INTERRUPT:
            self._begin(StopRequest.INTERRUPT, "interrupted")
        self.end(reason_to_end(journal.state, self._taken, journal.now))
        if self._signals.count > 1 or time.monotonic() > self._deadline:
            message = "ended by force, together with the sweep"
            for trial in journal.state.index.running:
                if trial.lease is None:
                    journal.dispatcher.kill(trial.number, trial.attempts, "preempted", message)
                elif self.request is StopRequest.STOP:
                    journal.move(trial, TrialState.STOPPED, "its agent has not ended it in time")

    def ends(self) -> bool:
        """Whether the sweep is ending, such as while there is no dispatcher yet."""
        self.check()
        return self.request is not None

    def stay(self) -> None:
        """The sweep is finished already, and is held only to answer agents and people."""
        self.request = StopRequest.STOP
        self.reason = "it is finished"

    def reopen(self) -> None:
        """A finished sweep goes on."""
        self.request = None

    def end(self, reason: str) -> None:
        """Finish the sweep if there is a reason, unless it is ending already."""
        if reason and self.request is None:
            self._begin(StopRequest.STOP, reason)

    def end_after(self, ended: Trial) -> None:
        """Finish the sweep if a trial that has ended is one failure too many."""
        self.end(reason_of_failures(self._journal.state, ended, self._began))

    def fail(self, error: AutomlError) -> None:
        """End the sweep by this error, which `finish` raises."""
        self._error = error
        self._begin(StopRequest.INTERRUPT, str(error))

    def stop_trial(
        self, trial: Trial, how: StopRequest, reason: str, *, held: bool = False
    ) -> None:
        """Ask a running trial to stop.

        Args:
            held: a person asks for a pause, so only a person resumes the trial.
        """
        journal = self._journal
        if trial.lease is not None:  # its agent learns it with its next report
            journal.lease(replace(trial.lease, asked=how, reason=reason, held=held))
            return
        self._reasons[trial.number] = reason
        if held:
            self._held.add(trial.number)
        journal.then(lambda: journal.dispatcher.stop(trial.number, trial.attempts, how))

    def is_stopping(self, trial: Trial) -> bool:
        """Whether a running trial was asked to stop."""
        is_requested = trial.lease is not None and trial.lease.asked is not None
        return is_requested or trial.number in self._reasons

    def explain(self, outcome: Outcome) -> Outcome:
        """The outcome of a trial that was asked to stop, with the reason as its message."""
        reason = self._reasons.pop(outcome.trial, "")
        held = outcome.trial in self._held
        self._held.discard(outcome.trial)
        if held and outcome.ending is Ending.PAUSED:
            outcome = replace(outcome, held=True)
        if not outcome.message and outcome.ending in (Ending.STOPPED, Ending.PAUSED):
            return replace(outcome, message=reason)
        return outcome

    def finish(self, reason: str) -> None:
        """Nothing runs any more: close the journal, with final states unless it can be resumed.

        Args:
            reason: why no trial begins, if nothing else has ended the sweep.

        Raises:
            AutomlError: the error that has ended the sweep.
        """
        if self._error is not None:
            raise self._error
        if self.request is StopRequest.INTERRUPT:
            self._journal.close("interrupted", self.reason)
            return
        for trial in list(self._journal.trials):
            if not trial.state.finished and trial.lease is None:
                self._journal.move(trial, TrialState.STOPPED, "the sweep has ended")
        self._journal.close("finished", self.reason or reason)

    def abandon(self, state: str, reason: str) -> None:
        """The controller fails: record that it is gone, if the ledger can still be written to."""
        try:
            for trial in self._journal.state.index.running:
                if trial.lease is None:
                    self._journal.move(trial, TrialState.INTERRUPTED, "its controller failed")
            self._journal.close(state, reason)
        except AutomlError:
            return

    def _begin(self, how: StopRequest, reason: str) -> None:
        self.request = how
        self.reason = reason
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._journal.note("end", reason)
        for trial in self._journal.state.index.running:
            if trial.lease is None or how is StopRequest.STOP:  # agents go on without a controller
                self.stop_trial(trial, how, reason)
