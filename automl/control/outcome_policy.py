"""What becomes of a trial when an attempt has ended: the goals are checked, and whether it is tried again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automl.core.events import final_metrics
from automl.core.goals import Goal
from automl.core.trial import Trial, TrialState
from workers.protocol import Ending, Halt, Metrics, Outcome, was_lost

_STATES: Mapping[Ending, TrialState] = {
    Ending.COMPLETED: TrialState.COMPLETED,
    Ending.STOPPED: TrialState.STOPPED,
    Ending.PAUSED: TrialState.PAUSED,
    Ending.INTERRUPTED: TrialState.INTERRUPTED,
    Ending.FAILED: TrialState.FAILED,
}


@dataclass(frozen=True)
class Verdict:
    """The state that a trial goes to, and why."""

    state: TrialState
    failure: str | None = None
    message: str = ""


def judge(
    trial: Trial,
    outcome: Outcome,
    goals: Sequence[Goal],
    *,
    max_retries: int,
    ending: Halt | None = None,
) -> Verdict:
    """Decide about a running trial whose attempt has ended.

    Args:
        max_retries: how often a trial is tried again when the configuration was not to blame.
        ending: how the sweep itself is ending, None where it goes on: then nothing is tried again, and what had to be
            ended by force is stopped or interrupted, not failed.
    """
    state = _STATES[outcome.ending]
    if state is TrialState.FAILED:
        return _judge_failure(trial, outcome, max_retries, ending)
    if state is TrialState.INTERRUPTED and ending is not Halt.INTERRUPT:
        # its worker was told to leave, and not by us
        return _try_again(trial, outcome, "preempted", max_retries)
    if state is TrialState.PAUSED and ending is Halt.STOP:
        state = TrialState.STOPPED
    if state in (TrialState.COMPLETED, TrialState.STOPPED):
        return _check_goals(state, final_metrics(trial, outcome), goals, outcome.message)
    return Verdict(state, message=outcome.message)


def _judge_failure(
    trial: Trial, outcome: Outcome, max_retries: int, ending: Halt | None
) -> Verdict:
    failure = outcome.failure or "crashed"
    if ending is not None and was_lost(outcome):
        state = TrialState.INTERRUPTED if ending is Halt.INTERRUPT else TrialState.STOPPED
        return Verdict(state, message=outcome.message)
    if failure == "preempted" or (failure == "crashed" and was_lost(outcome)):
        return _try_again(trial, outcome, failure, max_retries)
    return Verdict(TrialState.FAILED, failure, outcome.message)


def _try_again(trial: Trial, outcome: Outcome, failure: str, max_retries: int) -> Verdict:
    retries = int(trial.details.get("retries", 0))
    if retries < max_retries:
        return Verdict(
            TrialState.WAITING, failure, f"{outcome.message} (retry {retries + 1} of {max_retries})"
        )
    return Verdict(TrialState.FAILED, failure, f"{outcome.message} (after {retries} retries)")


def _check_goals(
    state: TrialState, metrics: Metrics, goals: Sequence[Goal], message: str
) -> Verdict:
    missing = [goal.metric for goal in goals if goal.metric not in metrics]
    if missing and state is TrialState.COMPLETED:
        came = ", ".join(sorted(metrics)) or "none"
        names = ", ".join(map(repr, missing))
        return Verdict(
            TrialState.FAILED,
            "missing_metric",
            f"no metric {names} was reported; these were: {came}",
        )
    for goal in goals:
        if not math.isfinite(metrics.get(goal.metric, 0.0)):
            return Verdict(
                TrialState.FAILED, "non_finite", f"{goal.metric} is {metrics[goal.metric]}"
            )
    return Verdict(state, message=message)
