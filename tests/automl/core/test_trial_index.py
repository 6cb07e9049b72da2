from __future__ import annotations

from automl.core.trial import Trial, TrialState
from automl.core.trial_index import History


def test_a_trial_is_in_one_list_at_a_time() -> None:
    history = History()
    path = [
        TrialState.WAITING,
        TrialState.RUNNING,
        TrialState.PAUSED,
        TrialState.WAITING,
        TrialState.COMPLETED,
    ]
    for state in path:
        for number in (2, 0, 1):
            history.update(Trial(number, {}, state))
        pending = state in (TrialState.WAITING, TrialState.RUNNING)
        assert [t.number for t in history.pending] == ([0, 1, 2] if pending else [])
        assert [t.number for t in history.known] == ([] if pending else [0, 1, 2])
        assert history.num_running == (3 if state is TrialState.RUNNING else 0)
        waiting = history.next_waiting
        assert (waiting.number if waiting else None) == (0 if state is TrialState.WAITING else None)
