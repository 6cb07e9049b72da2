"""How a sweep ends: by its budget, a stop request, a signal or an error.

- If there is a reason to end (`outcomes`), running trials are asked to stop. Trials that are left
  over become stopped, and the sweep is finished.
- At the first signal (Ctrl-C, SIGTERM), or if the suggester fails, running trials are asked to
  interrupt. The sweep can be resumed.
- At the second signal, or after 30 s, running trials are killed.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Any, Final

from automl.core import Trial, TrialState
from automl.core.events import GRACE_SECONDS
from automl.errors import AutomlError
from workers.protocol import Ending, Outcome, StopRequest

from .journal import Journal
from .outcomes import reason_of_failures


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
        # Of running trials that were asked to stop: why, and whether a person has asked to pause.
        self._asked: dict[int, tuple[str, bool]] = {}
        self._deadline = math.inf
        self._error: AutomlError | None = None
        self.request: StopRequest | None = None
        self.reason = ""

    def check(self) -> None:
        """Begin to end the sweep if it must end; kill running trials if they take too long."""
        journal = self._journal
        if self._signals.count and self.request is not StopRequest.INTERRUPT:
            self._begin(StopRequest.INTERRUPT, "interrupted")
        asked = journal.state.stop_number > self._taken  # not before this run of the sweep
        reason = journal.state.use.reason_to_end(journal.now)
        self.end("it was asked to stop" if asked else reason)
        if self._signals.count > 1 or time.monotonic() > self._deadline:
            message = "ended by force, together with the sweep"
            for trial in journal.state.index.running:
                if trial.lease is None:
                    journal.dispatcher.kill(trial.number, trial.attempts, "preempted", message)
                elif self.request is StopRequest.STOP:
                    journal.move(trial, TrialState.STOPPED, "its agent has not ended it in time")

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
        self._asked[trial.number] = (reason, held)
        journal.then(lambda: journal.dispatcher.stop(trial.number, trial.attempts, how))

    def is_stopping(self, trial: Trial) -> bool:
        """Whether a running trial was asked to stop."""
        is_requested = trial.lease is not None and trial.lease.asked is not None
        return is_requested or trial.number in self._asked

    def explain(self, outcome: Outcome) -> Outcome:
        """The outcome of a trial that was asked to stop, with the reason as its message."""
        reason, held = self._asked.pop(outcome.trial, ("", False))
        held = outcome.held or (held and outcome.ending is Ending.PAUSED)
        if not outcome.message and outcome.ending in (Ending.STOPPED, Ending.PAUSED):
            return replace(outcome, message=reason, held=held)
        return replace(outcome, held=held)

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


IMPATIENT_SECONDS: Final = 10.0  # after a Ctrl-C, in which further ones add nothing
WAIT_SECONDS: Final = 30.0  # for a suggestion that nobody needs any more


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; does nothing outside the main thread.

    Args:
        interrupts: raise KeyboardInterrupt at the second signal, because trials run in the main
            thread. Leaving the context handles the KeyboardInterrupt.

    Attributes:
        count: of the signals so far.
    """

    def __init__(self, *, interrupts: bool = False) -> None:
        self._interrupts = interrupts
        self._previous: dict[signal.Signals, Any] = {}
        self.count = 0
        self._raises = False

    def __enter__(self) -> StopSignals:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
            if self.count and isinstance(handler, SafeEnd):
                handler.taken = time.monotonic()
        self._previous.clear()
        return isinstance(error, KeyboardInterrupt)

    def install(self) -> None:
        """Install the handlers; call it again after Ray has installed its own."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous.setdefault(number, signal.signal(number, self._on_signal))

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first signal raises KeyboardInterrupt: no trial runs yet."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self._raises or (self.count == 2 and self._interrupts):
            raise KeyboardInterrupt


class SafeEnd:
    """Around a sweep: once a Ctrl-C was taken, further ones do not cut short how the sweep ends.

    So it is closed, and says how it can be resumed. Does nothing outside the main thread.

    Attributes:
        taken: when the last Ctrl-C was taken, by the monotonic clock; minus infinity before.
    """

    def __init__(self) -> None:
        self.taken = -float("inf")
        self._previous: Any = None

    def __enter__(self) -> None:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal as the handler before would, unless one was taken shortly before."""
        now = time.monotonic()
        if now > self.taken + IMPATIENT_SECONDS:
            self.taken = now
            self._previous(number, frame)

    def __exit__(self, *error: object) -> None:
        if self.taken > 0:
            from automl.suggesters.queue import wait_for_threads

            # If a thread imports torch at the end of a script, CPython forgets that nobody has
            # handled a KeyboardInterrupt, and the exit status is 1.
            wait_for_threads(WAIT_SECONDS)
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
