"""What a trial says of itself, and what stoppers see of one that a person has paused."""

from __future__ import annotations

from dataclasses import replace

from automl.core.trial import Trial, TrialState, without_held

PAUSED = Trial(3, {"lr": 0.1}, TrialState.PAUSED, held=True)


def test_stoppers_see_a_trial_that_a_person_has_paused_as_interrupted() -> None:
    assert without_held(PAUSED) == replace(PAUSED, state=TrialState.INTERRUPTED)
    for other in (
        replace(PAUSED, held=False),
        replace(PAUSED, state=TrialState.WAITING),
        replace(PAUSED, state=TrialState.RUNNING, held=False),
    ):
        assert without_held(other) is other


def test_a_trial_in_a_line() -> None:
    assert repr(PAUSED) == "Trial(3, paused, params={'lr': 0.1})"
    done = replace(PAUSED, state=TrialState.COMPLETED, value=0.123456789)
    assert repr(done) == "Trial(3, completed, value=0.123457, params={'lr': 0.1})"
    failed = replace(PAUSED, state=TrialState.FAILED, failure="crashed", message="x" * 200)
    assert repr(failed) == f"Trial(3, failed (crashed: {'x' * 100!r}), params={{'lr': 0.1}})"
