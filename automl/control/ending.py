"""Why a sweep ends, or begins no new trial: everything that says so, in one place.

| reason | effect |
|---|---|
| a person has asked it to stop | running trials stop, the sweep is finished |
| the target, the time or the worker time is reached | the same |
| the same error, or a kill from outside, again and again | the same |
| no trial has a metric that a constraint bounds | the same |
| the space is exhausted, all trials of the budget were begun | no new trial begins |
| too little gain is expected, or the recommendation is settled | the same |
| no trial could end in the time that is left | the same, and no waiting one begins |
"""

from itertools import islice
from typing import Final

from automl.core import SweepState, Trial, TrialState
from automl.core.mistakes import ended_from_outside, is_own_death
from automl.suggesters.queue import SuggestionQueue
from search_spaces.plugins import nearest
from workers.protocol import Outcome

from .assignments import Assigner
from .repeated_error import RepeatedError

SETTLED: Final = "settled"  # of `budget.until`
EXHAUSTED: Final = "every configuration of its space was tried"
NARROWED: Final = "every configuration within its limits was tried; the limits are on"
USED_UP: Final = "its budget is used up"
MAX_WITHOUT: Final = 3  # trials without a metric that a constraint bounds


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
        self._repeated_error = RepeatedError(state.trials)

    def reason_to_end(self, now: float) -> str:
        """Why the sweep must end at this second; "" if it goes on."""
        if self._state.stop_number > self._taken:
            return "it was asked to stop"
        return self._state.use.reason_to_end(now)

    def is_hopeless(self, trial: Trial, outcome: Outcome) -> bool:
        """Whether another attempt at a running trial, whose worker has died, would die too."""
        return self._repeated_error.count_death(trial, outcome)

    def reason_after(self, ended: Trial, outcome: Outcome) -> str:
        """Why it must end after this outcome, such as the same error again; "" if it goes on."""
        if outcome.worker_lost and not is_own_death(outcome) and not ended_from_outside(ended):
            return ""
        running = self._state.index.each_running()
        again = self._repeated_error.reason_to_end(ended, running)
        return again or self._reason_of_constraints(ended)

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
            limits = ", ".join(self._state.limits)
            return f"{NARROWED} {limits}" if limits else EXHAUSTED
        gain = budget.gain or 0.0
        if budget.until == SETTLED and (at := self._suggestions.settled(gain)):
            return (
                "the recommendation is settled: going on is expected to improve it by at most "
                f"{at.gain:.2g}, and its standard error is {at.error:.2g}"
            )
        if budget.until is None and not self._suggestions.worth(budget.gain):
            return f"another trial is expected to gain less than {gain:g}"
        return self.reason_of_time(now)

    def reason_of_time(self, now: float) -> str:
        """Why the next trial, a waiting or a new one, could not end in time; "" if it could."""
        waiting = self._state.index.next_waiting
        slots = self._assigner.slots(waiting.params) if waiting else 1
        reason = self._state.use.reason_to_begin_none(now, slots)
        return f"no further trial begins: {reason}" if reason else ""
