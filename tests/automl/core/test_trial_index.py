from __future__ import annotations

from automl.core.trial import AgentLease, Trial, TrialIndex, TrialState


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
        assert index.num_running == (3 if state is TrialState.RUNNING else 0)
        waiting = index.next_waiting
        assert (waiting.number if waiting else None) == (0 if state is TrialState.WAITING else None)


def test_trials_of_agents_are_found_without_a_look_at_the_others() -> None:
    lease = AgentLease("a", 60.0, 100.0)
    index = TrialIndex(Trial(number, {}, TrialState.RUNNING) for number in range(3))
    assert index.leased == []
    held = Trial(1, {}, TrialState.RUNNING, lease=lease)
    index.update(held)
    assert index.leased == [held]
    assert sorted(trial.number for trial in index.running) == [0, 1, 2]
    index.update(Trial(1, {}, TrialState.RUNNING))
    assert index.leased == []
    index.update(held)
    index.update(Trial(1, {}, TrialState.COMPLETED, lease=lease))
    assert index.leased == []
