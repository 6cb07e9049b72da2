"""The policy on outcomes: the state of a trial after an attempt, and whether it is retried."""

import math
from dataclasses import dataclass

from automl.core import Ended, Goal, Trial, TrialState
from automl.core.events import final_metrics
from workers.protocol import Outcome, StopRequest


@dataclass(frozen=True)
class OutcomePolicy:
    """Decides the next state of a running trial whose attempt has ended.

    Args:
        goals: of the sweep; a completed trial without a finite value for each has failed.
        max_retries: how often a trial is retried if its configuration did not cause the failure.
            A trial that was told in time that its machine is taken away goes on without a limit.
    """

    goals: tuple[Goal, ...]
    max_retries: int

    def decide(
        self, trial: Trial, outcome: Outcome, at: float, *, sweep_stop: StopRequest | None = None
    ) -> Ended:
        """The event that ends the attempt.

        Args:
            at: seconds since the sweep began.
            sweep_stop: how the sweep itself is ending, None if it goes on. While it ends, no trial
                is retried, and a trial whose worker was killed is stopped or interrupted instead
                of failed.
        """
        state, failure, message = self._decide(trial, outcome, sweep_stop)
        return Ended(outcome, state, failure, message, at)

    def _decide(
        self, trial: Trial, outcome: Outcome, sweep_stop: StopRequest | None
    ) -> tuple[TrialState, str | None, str]:
        state = TrialState(outcome.ending.value)  # each ending has a state of the same name
        if state is TrialState.FAILED:
            return self._decide_failed(trial, outcome, sweep_stop)
        if state is TrialState.INTERRUPTED and sweep_stop is not StopRequest.INTERRUPT:
            # Its worker's machine is taken away, with notice: what it has done is saved.
            return TrialState.WAITING, "preempted", outcome.message
        if state is TrialState.PAUSED and sweep_stop is StopRequest.STOP:
            state = TrialState.STOPPED
        if state in (TrialState.COMPLETED, TrialState.STOPPED):
            return self._check_goals(state, trial, outcome)
        return state, None, outcome.message

    def _decide_failed(
        self, trial: Trial, outcome: Outcome, sweep_stop: StopRequest | None
    ) -> tuple[TrialState, str | None, str]:
        failure = outcome.failure or "crashed"
        if sweep_stop is not None and outcome.worker_lost:
            if sweep_stop is StopRequest.INTERRUPT:
                return TrialState.INTERRUPTED, None, outcome.message
            return TrialState.STOPPED, None, outcome.message
        if failure == "preempted" or (failure == "crashed" and outcome.worker_lost):
            return self._retry(trial, outcome, failure)
        if failure == "crashed" and self._said_all_before(trial, outcome):
            state, failed, why = self._check_goals(TrialState.STOPPED, trial, outcome)
            said = f"could not go on, so its last report counts: {outcome.message}"
            return state, failed, why if failed else said
        return TrialState.FAILED, failure, outcome.message

    def _said_all_before(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether earlier attempts have reported every goal, and this one nothing at all."""
        if not trial.reports or trial.reports[-1].attempt >= outcome.attempt:
            return False
        metrics = final_metrics(trial, outcome)
        return all(goal.metric in metrics for goal in self.goals)

    def _retry(
        self, trial: Trial, outcome: Outcome, failure: str
    ) -> tuple[TrialState, str | None, str]:
        retries = trial.retries
        if retries < self.max_retries:
            message = f"{outcome.message} (retry {retries + 1} of {self.max_retries})"
            return TrialState.WAITING, failure, message
        return TrialState.FAILED, failure, f"{outcome.message} (after {retries} retries)"

    def _check_goals(
        self, state: TrialState, trial: Trial, outcome: Outcome
    ) -> tuple[TrialState, str | None, str]:
        metrics = final_metrics(trial, outcome)
        missing = [goal.metric for goal in self.goals if goal.metric not in metrics]
        if missing and state is TrialState.COMPLETED:
            reported = ", ".join(sorted(metrics)) or "none"
            names = ", ".join(map(repr, missing))
            message = f"no metric {names} was reported; these were: {reported}"
            return TrialState.FAILED, "missing_metric", message
        for goal in self.goals:
            if not math.isfinite(metrics.get(goal.metric, 0.0)):
                message = f"{goal.metric} is {metrics[goal.metric]}"
                return TrialState.FAILED, "non_finite", message
        return state, None, outcome.message
