"""The state of a trial after an attempt, whether it is tried again, and why a sweep ends.

A sweep ends, or begins no new trial, for these reasons only:

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from automl.core import Ended, Goal, SweepSpec, SweepState, Trial, TrialState
from automl.core.events import final_metrics
from automl.core.text import mistake_hint
from automl.core.trial import ANEW
from automl.suggesters.queue import SuggestionQueue
from workers.protocol import Outcome, StopRequest

Decided = tuple[TrialState, str | None, str]  # the next state, the failure and the message


def ended(
    spec: SweepSpec, trial: Trial, outcome: Outcome, at: float, stopping: StopRequest | None = None
) -> Ended:
    """The event that ends the running attempt of a trial.

    A completed trial without a finite value for each goal has failed. A trial is retried up to
    `max_retries` times if its configuration did not cause the failure; one that was told in time
    that its machine is taken away goes on without a limit.

    Args:
        at: seconds since the sweep began.
        stopping: how the sweep itself is ending, None if it goes on. Meanwhile no trial is retried,
            and one whose worker was killed is stopped or interrupted instead of failed.
    """
    # An attempt that begins anew replaces the reports of those before it, see `lineage`.
    goes_on = trial.reports and trial.reports[0].attempt < outcome.attempt
    if trial.seconds and not goes_on:
        outcome = replace(outcome, details={**outcome.details, ANEW: True})
    state = TrialState(outcome.ending.value)  # each ending has a state of the same name
    found: Decided = state, None, outcome.message
    if state is TrialState.FAILED:
        found = _failed(trial, outcome, spec, stopping)
    elif state is TrialState.INTERRUPTED and stopping is not StopRequest.INTERRUPT:
        # Its worker's machine is taken away, with notice: what it has done is saved.
        found = TrialState.WAITING, "preempted", outcome.message
    elif state is TrialState.PAUSED and stopping is StopRequest.STOP:
        found = _checked(TrialState.STOPPED, trial, outcome, spec.goals)
    elif state in (TrialState.COMPLETED, TrialState.STOPPED):
        found = _checked(state, trial, outcome, spec.goals)
    return Ended(outcome, *found, at)


def _failed(
    trial: Trial, outcome: Outcome, spec: SweepSpec, stopping: StopRequest | None
) -> Decided:
    failure, message = outcome.failure or "crashed", outcome.message
    if stopping is not None and outcome.worker_lost:
        is_resumable = stopping is StopRequest.INTERRUPT
        return TrialState.INTERRUPTED if is_resumable else TrialState.STOPPED, None, message
    if failure == "preempted" or (failure == "crashed" and outcome.worker_lost):
        if trial.retries < spec.max_retries:
            message = f"{message} (retry {trial.retries + 1} of {spec.max_retries})"
            return TrialState.WAITING, failure, message
        return TrialState.FAILED, failure, f"{message} (after {trial.retries} retries)"
    if failure == "crashed" and _said_all_before(trial, outcome, spec.goals):
        state, failed, why = _checked(TrialState.STOPPED, trial, outcome, spec.goals)
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


SETTLED: Final = "settled"  # of `budget.until`
ASKED_NOTHING: Final = (
    "no space was given, and its objective asks for no parameter (trial.suggest_float)"
)
EXHAUSTED: Final = "every configuration of its space was tried"
NARROWED: Final = "every configuration within its limits was tried; the limits are on"
USED_UP: Final = "its budget is used up"
MAX_ALIKE: Final = 3  # failures, if nothing has succeeded
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def reason_of_failures(state: SweepState, failed: Trial, since: float) -> str:
    """Why the sweep must end after this trial, if failures like it are all that has come so far.

    A success since the first of them is an answer, except to a kill from outside or a full disk. A
    trial that runs may still succeed if it has reported, or has outlived a later one.

    Args:
        since: when this run of the sweep began; earlier failures do not count.
    """
    outside = failed.ended_from_outside
    if failed.state is not TrialState.FAILED or not (failed.is_mistake or outside):
        return ""
    if not outside and any(map(_has_succeeded, state.trials)):
        return ""
    alike = 0
    ended = [trial for trial in state.trials if trial.ended is not None and trial.ended >= since]
    for trial in sorted(ended, key=lambda trial: trial.ended or 0.0, reverse=True):
        if _has_succeeded(trial):
            break
        if trial.state is TrialState.FAILED and trial.error == failed.error:
            alike += trial.attempts if trial.died_by_itself else 1
    running = state.index.running
    if alike < MAX_ALIKE or any(one.reports or one.number < failed.number for one in running):
        return ""
    failures = "attempts" if failed.died_by_itself else "trials"
    between = " in between" if any(map(_has_succeeded, state.trials)) else ""
    words = f"{alike} {failures} failed alike and none succeeded{between}"
    return f"{words}: {failed.message}. {mistake_hint(failed)}".rstrip()


def reason_for_none(
    state: SweepState,
    suggestions: SuggestionQueue,
    slots: Callable[[Mapping[str, Any]], int],
    now: float,
) -> str:
    """Why no new trial begins; "" if one may.

    Args:
        suggestions: know what another trial may gain, and whether the space is exhausted.
        slots: returns how many slots a configuration takes.
    """
    budget = state.spec.budget
    if state.trials_left == 0:
        return USED_UP
    if suggestions.exhausted:
        if not state.spec.space.parameters:
            return ASKED_NOTHING
        limits = ", ".join(state.limits)
        return f"{NARROWED} {limits}" if limits else EXHAUSTED
    if budget.until == SETTLED and (at := suggestions.settled()):
        return (
            "the recommendation is settled: going on is expected to improve it by at most "
            f"{at.gain:.2g}, and its standard error is {at.error:.2g}"
        )
    return reason_of_time(state, slots, now)


def reason_of_time(state: SweepState, slots: Callable[[Mapping[str, Any]], int], now: float) -> str:
    """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
    waiting = state.index.next_waiting
    reason = state.use.reason_to_begin_none(now, slots(waiting.params) if waiting else 1)
    return f"no further trial begins: {reason}" if reason else ""


def _has_succeeded(trial: Trial) -> bool:
    """Whether an attempt has worked; a trial that was imported or never began says nothing."""
    return trial.state in _SUCCESSES and trial.seconds > 0
