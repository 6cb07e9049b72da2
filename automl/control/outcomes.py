"""The policy on outcomes: the state of a trial after an attempt, and whether it is tried again."""

import math
from collections.abc import Sequence
from dataclasses import replace

from automl.core import Ended, Goal, SweepSpec, Trial, TrialState
from automl.core.events import final_metrics
from automl.core.trial import ANEW
from workers.protocol import Outcome, StopRequest

Decided = tuple[TrialState, str | None, str]  # the next state, the failure and the message


def ended(
    spec: SweepSpec, trial: Trial, outcome: Outcome, at: float, stopping: StopRequest | None = None
) -> Ended:
    """The event that ends the running attempt of a trial.

    Args:
        at: seconds since the sweep began.
        stopping: how the sweep itself is ending, None if it goes on.
    """
    # An attempt that begins anew replaces the reports of those before it, see `lineage`.
    goes_on = trial.reports and trial.reports[0].attempt < outcome.attempt
    if trial.seconds and not goes_on:
        outcome = replace(outcome, details={**outcome.details, ANEW: True})
    return decide(trial, outcome, at, spec.goals, spec.max_retries, stopping)


def decide(
    trial: Trial,
    outcome: Outcome,
    at: float,
    goals: Sequence[Goal],
    max_retries: int,
    stopping: StopRequest | None = None,
) -> Ended:
    """The event that ends an attempt.

    Args:
        goals: of the sweep; a completed trial without a finite value for each has failed.
        max_retries: how often a trial is retried if its configuration did not cause the failure. A
            trial that was told in time that its machine is taken away goes on without a limit.
        at, stopping: as in `ended`. While the sweep ends, no trial is retried, and a trial whose
            worker was killed is stopped or interrupted instead of failed.
    """
    state = TrialState(outcome.ending.value)  # each ending has a state of the same name
    found: Decided = state, None, outcome.message
    if state is TrialState.FAILED:
        found = _failed(trial, outcome, goals, max_retries, stopping)
    elif state is TrialState.INTERRUPTED and stopping is not StopRequest.INTERRUPT:
        # Its worker's machine is taken away, with notice: what it has done is saved.
        found = TrialState.WAITING, "preempted", outcome.message
    elif state is TrialState.PAUSED and stopping is StopRequest.STOP:
        found = _checked(TrialState.STOPPED, trial, outcome, goals)
    elif state in (TrialState.COMPLETED, TrialState.STOPPED):
        found = _checked(state, trial, outcome, goals)
    return Ended(outcome, *found, at)


def _failed(
    trial: Trial,
    outcome: Outcome,
    goals: Sequence[Goal],
    max_retries: int,
    stopping: StopRequest | None,
) -> Decided:
    failure, message = outcome.failure or "crashed", outcome.message
    if stopping is not None and outcome.worker_lost:
        is_resumable = stopping is StopRequest.INTERRUPT
        return TrialState.INTERRUPTED if is_resumable else TrialState.STOPPED, None, message
    if failure == "preempted" or (failure == "crashed" and outcome.worker_lost):
        if trial.retries < max_retries:
            message = f"{message} (retry {trial.retries + 1} of {max_retries})"
            return TrialState.WAITING, failure, message
        return TrialState.FAILED, failure, f"{message} (after {trial.retries} retries)"
    if failure == "crashed" and _said_all_before(trial, outcome, goals):
        state, failed, why = _checked(TrialState.STOPPED, trial, outcome, goals)
        said = f"could not go on, so its last report counts: {message}"
        return state, failed, why if failed else said
    return TrialState.FAILED, failure, message


def _said_all_before(trial: Trial, outcome: Outcome, goals: Sequence[Goal]) -> bool:
    """Whether earlier attempts have reported every goal, and this one nothing at all."""
    if not trial.reports or trial.reports[-1].attempt >= outcome.attempt:
        return False
    metrics = final_metrics(trial, outcome)
    return all(goal.metric in metrics for goal in goals)


def _checked(state: TrialState, trial: Trial, outcome: Outcome, goals: Sequence[Goal]) -> Decided:
    metrics = final_metrics(trial, outcome)
    missing = [goal.metric for goal in goals if goal.metric not in metrics]
    if missing and state is TrialState.COMPLETED:
        reported = ", ".join(sorted(metrics)) or "none"
        names = ", ".join(map(repr, missing))
        message = f"no metric {names} was reported; these were: {reported}"
        return TrialState.FAILED, "missing_metric", message
    for goal in goals:
        if not math.isfinite(metrics.get(goal.metric, 0.0)):
            return TrialState.FAILED, "non_finite", f"{goal.metric} is {metrics[goal.metric]}"
    return state, None, outcome.message
