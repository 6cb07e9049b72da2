"""Notices an objective that cannot work: the same error again and again, and no success."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from automl.core import Trial, TrialState
from automl.core.mistakes import error_key, is_mistake
from automl.core.text import mistake_hint

NUM_ALIKE: Final = 3
_SUCCESSES: Final = (TrialState.COMPLETED, TrialState.STOPPED, TrialState.PAUSED)


class RepeatedError:
    """Counts the errors of a run of a sweep, until a trial succeeds.

    Args:
        trials: of the sweep's earlier runs.
    """

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._succeeded = any(map(_has_succeeded, trials))
        self._counts: Counter[tuple[str, str]] = Counter()

    def reason_to_end(self, ended: Trial, running: Iterable[Trial]) -> str | None:
        """Why the sweep should end now that an attempt has ended; None if it should go on.

        Args:
            ended: the trial after its attempt.
            running: the other trials that run. One that has reported, or that has lasted longer
                than a later one, may still succeed.
        """
        self._succeeded |= _has_succeeded(ended)
        if self._succeeded or not is_mistake(ended):
            return None
        error = error_key(ended)
        self._counts[error] += 1
        if self._counts[error] < NUM_ALIKE:
            return None
        if any(trial.reports or trial.number < ended.number for trial in running):
            return None
        count = self._counts[error]
        hint = mistake_hint(ended)
        return f"{count} trials failed alike and none succeeded: {ended.message}. {hint}"


def _has_succeeded(trial: Trial) -> bool:
    """Whether an attempt has worked; a trial that was imported or never began says nothing."""
    return trial.state in _SUCCESSES and trial.seconds > 0
