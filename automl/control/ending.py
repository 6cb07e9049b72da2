"""Why a sweep ends, or begins no new trial: everything that says so, in one place.

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| no trial has a metric that a constraint bounds | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
"""

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Final

from automl.core import SweepState, Trial, TrialState
from automl.core.text import mistake_hint
from automl.suggesters.queue import SuggestionQueue
from search_spaces.plugins import nearest
from workers.protocol import Outcome

from .assignments import Assigner

SETTLED: Final = "settled"  # of `budget.until`
ASKED_NOTHING: Final = (
    "no space was given, and its objective asks for no parameter (trial.suggest_float)"
)
EXHAUSTED: Final = "every configuration of its space was tried"
NARROWED: Final = "every configuration within its limits was tried; the limits are on"
USED_UP: Final = "its budget is used up"
MAX_WITHOUT: Final = 3  # trials without a metric that a constraint bounds
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)
_MAX_ALIKE: Final = 3
_MAX_LEARNED: Final = 10  # of failures from which the suggester learns where not to go


class EndOfSweep:
    """Says why a sweep must end, and why it begins no new trial.

    Args:
        state: of the sweep.
        taken: number of the last record when the sweep was taken; an earlier request to stop it
            does not count.
        suggestions: know what another trial may gain, and whether the space is exhausted.
        assigner: knows how many slots a trial takes.
    """

    def __init__(
        self, state: SweepState, taken: int, suggestions: SuggestionQueue, assigner: Assigner
    ) -> None:
        self._state = state
        self._taken = taken
        self._suggestions = suggestions
        self._assigner = assigner
        self._succeeded = any(map(_has_succeeded, state.trials))
        self._alike: Counter[tuple[str, ...]] = Counter()  # failures, until a trial succeeds

    def reason_to_end(self, now: float) -> str:
        """Why the sweep must end at this second; "" if it goes on."""
        if self._state.stop_number > self._taken:
            return "it was asked to stop"
        return self._state.use.reason_to_end(now)

    def is_hopeless(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether another attempt at a running trial, whose worker has died, would die too."""
        dead = replace(
            trial,
            failure=outcome.failure,
            cause=outcome.cause,
            exit_status=outcome.exit_status,
            exception=outcome.exception,
            raised_at="",
        )
        if self._succeeded or not dead.died_by_itself:
            return False
        self._alike[dead.error] += 1
        return self._alike[dead.error] >= _MAX_ALIKE

    def reason_after(self, ended: Trial, outcome: Outcome) -> str:
        """Why it must end after this outcome, such as the same error again; "" if it goes on."""
        if outcome.worker_lost and not ended.died_by_itself and not ended.ended_from_outside:
            return ""
        return self._reason_of_failures(ended) or self._reason_of_constraints(ended)

    def _reason_of_failures(self, ended: Trial) -> str:
        """Why it must end if nothing but this failure has come so far; "" if it goes on.

        A trial that runs may still succeed if it has reported, or has outlived a later one.
        """
        if _has_succeeded(ended):
            self._succeeded = True
            self._alike.clear()
        most = most_alike(ended)
        if not most or (self._succeeded and not ended.ended_from_outside):
            return ""
        self._alike[ended.error] += not ended.died_by_itself  # deaths were counted already
        count = self._alike[ended.error]
        running = self._state.index.each_running()
        if count < most or any(one.reports or one.number < ended.number for one in running):
            return ""
        failures = "attempts" if ended.died_by_itself else "trials"
        words = f"{count} {failures} failed alike and none succeeded"
        words += " in between" if self._succeeded else ""
        words = words if most > 1 else "no trial can work"
        return f"{words}: {ended.message}. {mistake_hint(ended)}".rstrip()

    def _reason_of_constraints(self, ended: Trial) -> str:
        """Why it must end if the first trials lack a metric that a constraint bounds; "" if not."""
        if ended.state is not TrialState.COMPLETED:
            return ""
        completed = (one for one in self._state.trials if one.state is TrialState.COMPLETED)
        first = [*islice(completed, MAX_WITHOUT + 1)]
        for constraint in self._state.spec.constraints if len(first) == MAX_WITHOUT else ():
            known = {name for one in first for name in one.metrics}
            if constraint.metric not in known:
                return (
                    f"{MAX_WITHOUT} trials have completed, and none has the metric of the "
                    f"constraint {constraint}: {nearest(constraint.metric, sorted(known))}"
                )
        return ""

    def reason_for_none(self, now: float) -> str:
        """Why no new trial begins; "" if one may."""
        budget = self._state.spec.budget
        if self._state.trials_left == 0:
            return USED_UP
        if self._suggestions.exhausted:
            if not self._state.spec.space.parameters:
                return ASKED_NOTHING
            limits = ", ".join(self._state.limits)
            return f"{NARROWED} {limits}" if limits else EXHAUSTED
        if budget.until == SETTLED and (at := self._suggestions.settled()):
            return (
                "the recommendation is settled: going on is expected to improve it by at most "
                f"{at.gain:.2g}, and its standard error is {at.error:.2g}"
            )
        return self.reason_of_time(now)

    def reason_of_time(self, now: float) -> str:
        """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
        waiting = self._state.index.next_waiting
        slots = self._assigner.slots(waiting.params) if waiting else 1
        reason = self._state.use.reason_to_begin_none(now, slots)
        return f"no further trial begins: {reason}" if reason else ""


def most_alike(trial: Trial) -> int:
    """A sweep without a success ends after so many failures like this one; 0 if it goes on."""
    if trial.state is not TrialState.FAILED:
        return 0
    if trial.is_certain:
        return 1
    if trial.teaches:
        return _MAX_LEARNED
    return _MAX_ALIKE if trial.is_mistake or trial.ended_from_outside else 0


def _has_succeeded(trial: Trial) -> bool:
    """Whether an attempt has worked; a trial that was imported or never began says nothing."""
    return trial.state in _SUCCESSES and trial.seconds > 0
