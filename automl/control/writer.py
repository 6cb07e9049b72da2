"""Decisions about a sweep become events: each kind of event is built here, and nowhere else.

Commands are built by those who send them (`workflows`), `Started` and `Report` by those who run
an attempt, and `Ended` by the policy on outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from automl.core import (
    Answered,
    Begun,
    Closed,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SpecChanged,
    SweepEvent,
    SweepSpec,
    SweepState,
    Trial,
    TrialState,
)
from automl.core.arguments import json_data
from automl.core.trial import ANEW, AgentLease
from automl.errors import AutomlError
from automl.ledger import Ledger, Recorder
from workers.protocol import Ending, Outcome, Params, Report, StopRequest

from .outcome_policy import OutcomePolicy


class SweepWriter:
    """Applies decisions to a sweep that this process holds. Used from one thread.

    Args:
        recorder: of the sweep.
        clock: returns the seconds of the sweep.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._recorder = recorder
        self._clock = clock
        self._said_steps = False

    @property
    def state(self) -> SweepState:
        """The sweep, with everything that was applied; do not change it."""
        return self._recorder.state

    @property
    def spec(self) -> SweepSpec:
        """The specification of the sweep."""
        return self._recorder.state.spec

    @property
    def trials(self) -> list[Trial]:
        """Every trial by number; do not change this list."""
        return self._recorder.state.trials

    @property
    def now(self) -> float:
        """Seconds of the sweep, including its earlier runs."""
        return self._clock()

    def apply(self, event: SweepEvent) -> Trial | None:
        """The trial after the event; None if the event changes none."""
        if isinstance(event, Report) and not self._said_steps:
            self._check_step(event)
        return self._recorder.apply(event)

    def _check_step(self, report: Report) -> None:
        """Note the first step that is lower than the one before: stoppers expect that they grow."""
        trial = self.trials[report.trial] if report.trial < len(self.trials) else None
        last = trial.reports[-1] if trial is not None and trial.reports else None
        if last is None or (report.attempt, report.sequence) <= (last.attempt, last.sequence):
            return  # it comes twice, or late
        if report.attempt == last.attempt and report.step < last.step:
            self._said_steps = True
            words = f"trial {report.trial} reports step {report.step} after step {last.step}"
            self.note("steps", f"{words}: count steps up, as curves and stoppers need it")

    def propose(
        self,
        params: Params,
        source: str,
        command: int | None = None,
        replicate_of: int | None = None,
    ) -> Trial:
        """A configuration becomes the next trial.

        Args:
            command: number of the command that asked for it.
            replicate_of: number of the trial whose configuration runs again.
        """
        number = len(self.trials)
        return self._changed(
            Proposed(number, dict(params), source, self.now, command, replicate_of)
        )

    def begin(self, trial: Trial, slots: int = 1) -> Trial:
        """The next attempt of a trial begins and takes this many slots."""
        return self._changed(Begun(trial.number, trial.attempts + 1, self.now, slots))

    def end(
        self,
        trial: Trial,
        outcome: Outcome,
        *,
        sweep_stop: StopRequest | None = None,
        hopeless: bool = False,
    ) -> Trial | None:
        """The running attempt of a trial ends; if it is `hopeless`, it is not tried again."""
        return self.apply(self.ended(trial, outcome, sweep_stop=sweep_stop, hopeless=hopeless))

    def ended(
        self,
        trial: Trial,
        outcome: Outcome,
        *,
        sweep_stop: StopRequest | None = None,
        hopeless: bool = False,
    ) -> Ended:
        """The event that `end` applies; see `OutcomePolicy.decide`."""
        # An attempt that begins anew replaces the reports of those before it, see `lineage`.
        goes_on = trial.reports and trial.reports[0].attempt < outcome.attempt
        if trial.seconds and not goes_on:
            outcome = replace(outcome, details={**outcome.details, ANEW: True})
        policy = OutcomePolicy(self.spec.goals, 0 if hopeless else self.spec.max_retries)
        return policy.decide(trial, outcome, self.now, sweep_stop=sweep_stop)

    def fail(self, trial: Trial, failure: str, message: str, **facts: Any) -> Trial | None:
        """An attempt ends before a worker has it, or is lost; `facts` are of its outcome."""
        outcome = Outcome(
            trial.number, trial.attempts, Ending.FAILED, failure=failure, message=message, **facts
        )
        return self.end(trial, outcome)

    def move(self, trial: Trial, state: TrialState, reason: str) -> Trial:
        """A trial changes its state without an outcome."""
        running = trial.state is TrialState.RUNNING
        seconds = self.seconds_running(trial) if running else 0.0
        return self._changed(Moved(trial.number, state, reason, self.now, seconds))

    def lease(self, trial: Trial, lease: AgentLease) -> None:
        """An agent holds the running attempt of a trial."""
        self.apply(Leased(trial.number, trial.attempts, **vars(lease), at=self.now))

    def answer(self, number: int, content: Mapping[str, Any], trial: int | None = None) -> None:
        """Answer a request, the number of whose record this is."""
        self.apply(Answered(number, json_data(content), trial, self.now))

    def note(self, kind: str, message: str, trial: int | None = None) -> None:
        """Record a note, about a trial or the sweep."""
        self.apply(Noted(kind, message, trial, self.now))

    def specify(self, spec: SweepSpec) -> None:
        """Go on with another specification."""
        if spec != self.spec:
            self.apply(SpecChanged(spec.to_dict(), at=self.now))
        self.state.spec = spec  # its dictionary has less

    def seconds_running(self, trial: Trial) -> float:
        """How long the running attempt of a trial has taken until now."""
        return max(0.0, self.now - self.state.use.begun(trial.number))

    def _closed(self, state: str, reason: str) -> None:
        """A controller ends its run of the sweep."""
        self.apply(Closed(state, reason, at=self.now))

    def _changed(self, event: SweepEvent) -> Trial:
        trial = self.apply(event)
        if trial is None:
            raise AutomlError(f"{event} changes nothing")
        return trial


@contextmanager
def writing(ledger: Ledger, sweep: str) -> Iterator[SweepWriter]:
    """Hold a sweep that no controller runs; what is written inside is committed together.

    Raises:
        StoreError: a controller holds the sweep.
    """
    recorder = ledger.acquire(sweep)
    try:
        yield SweepWriter(recorder, lambda: recorder.seconds)
        recorder.commit()
    finally:
        ledger.release(sweep)
