"""Notices an objective that cannot work: the same error again and again, and no success."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from automl.core import Trial, TrialState
from automl.core.mistakes import (
    died_by_itself,
    ended_from_outside,
    error_key,
    is_own_death,
    most_alike,
)
from automl.core.text import mistake_hint
from workers.protocol import Outcome

_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


class RepeatedError:
    """Counts the errors of a run of a sweep, until a trial succeeds, and kills since the last one.

    Args:
        trials: of the sweep's earlier runs.
    """

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._succeeded = any(map(_has_succeeded, trials))
        self._counts: Counter[tuple[str, str]] = Counter()

    def count_death(self, trial: Trial, outcome: Outcome) -> bool:
        """Count an attempt that has ended its own worker; whether another would do so too."""
        if self._succeeded or not is_own_death(outcome):
            return False
        dead = replace(trial, failure=outcome.failure, message=outcome.message)
        self._counts[error_key(dead)] += 1
        return self._counts[error_key(dead)] >= most_alike(dead)

    def reason_to_end(self, ended: Trial, running: Iterable[Trial]) -> str | None:
        """Why the sweep should end now that an attempt has ended; None if it should go on.

        Args:
            ended: the trial after its attempt.
            running: the other trials that run. One that has reported, or that has lasted longer
                than a later one, may still succeed.
        """
        if _has_succeeded(ended):
            self._succeeded = True
            self._counts.clear()
        most = most_alike(ended) if ended.state is TrialState.FAILED else 0
        if not most or (self._succeeded and not ended_from_outside(ended)):
            return None
        error = error_key(ended)
        self._counts[error] += not died_by_itself(ended)  # deaths were counted already
        if self._counts[error] < most:
            return None
        if any(trial.reports or trial.number < ended.number for trial in running):
            return None
        count = self._counts[error]
        failures = "attempts" if died_by_itself(ended) else "trials"
        words = f"{count} {failures} failed alike and none succeeded"
        words += " in between" if self._succeeded else ""
        words = words if most > 1 else "no trial can work"
        return f"{words}: {ended.message}. {mistake_hint(ended)}".rstrip()


def _has_succeeded(trial: Trial) -> bool:
    """Whether an attempt has worked; a trial that was imported or never began says nothing."""
    return trial.state in _SUCCESSES and trial.seconds > 0
