"""Why a sweep ends, or begins no new trial: everything that says so, in one place.

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
"""

from typing import Final

from automl.core import SweepState, Trial, TrialState
from automl.core.text import mistake_hint
from automl.suggesters.queue import SuggestionQueue

SETTLED: Final = "settled"  # of `budget.until`
ASKED_NOTHING: Final = (
    "no space was given, and its objective asks for no parameter (trial.suggest_float)"
)
EXHAUSTED: Final = "every configuration of its space was tried"
NARROWED: Final = "every configuration within its limits was tried; the limits are on"
USED_UP: Final = "its budget is used up"
MAX_ALIKE: Final = 3  # failures, if nothing has succeeded
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


def reason_to_end(state: SweepState, taken: int, now: float) -> str:
    """Why the sweep must end at this second; "" if it goes on.

    Args:
        taken: number of the last record when the sweep was taken; an earlier request to stop it
            does not count.
    """
    if state.stop_number > taken:
        return "it was asked to stop"
    return state.use.reason_to_end(now)


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


def reason_for_none(state: SweepState, suggestions: SuggestionQueue, now: float) -> str:
    """Why no new trial begins; "" if one may.

    Args:
        suggestions: know what another trial may gain, and whether the space is exhausted.
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
    return reason_of_time(state, now)


def reason_of_time(state: SweepState, now: float) -> str:
    """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
    reason = state.use.reason_to_begin_none(now)
    return f"no further trial begins: {reason}" if reason else ""


def _has_succeeded(trial: Trial) -> bool:
    """Whether an attempt has worked; a trial that was imported or never began says nothing."""
    return trial.state in _SUCCESSES and trial.seconds > 0
