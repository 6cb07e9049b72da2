from __future__ import annotations

from automl.core.trial import Trial, TrialIndex, TrialState


def test_a_trial_is_in_one_list_at_a_time() -> None:
    index = TrialIndex()
    path = [
        TrialState.WAITING,
        TrialState.RUNNING,
        TrialState.PAUSED,
        TrialState.WAITING,
        TrialState.COMPLETED,
    ]
    for state in path:
        for number in (2, 0, 1):
            index.update(Trial(number, {}, state))
        pending = state in (TrialState.WAITING, TrialState.RUNNING)
        assert [t.number for t in index.pending] == ([0, 1, 2] if pending else [])
        assert [t.number for t in index.known] == ([] if pending else [0, 1, 2])
        assert len(index.running) == (3 if state is TrialState.RUNNING else 0)
        waiting = index.next_waiting
        assert (waiting.number if waiting else None) == (0 if state is TrialState.WAITING else None)
