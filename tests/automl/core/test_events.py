from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.core.events import Begun, Ended, Moved, Proposed, SweepEvent
from automl.core.state import fold
from automl.core.trial import TRANSITIONS, Trial, TrialState, check_transition
from automl.errors import AutomlError
from workers.protocol import Ending, Outcome, Report, Started

PARAMS = {"lr": 0.1, "layers": 2}


def folded(*events: SweepEvent, trial: Trial | None = None) -> Trial:
    for event in events:
        trial = fold(trial, event)
    assert trial is not None
    return trial


def running(attempt: int = 1) -> Trial:
    trial = folded(Proposed(0, PARAMS, "bayes"))
    for number in range(1, attempt + 1):
        trial = folded(Begun(0, number, float(number)), trial=trial)
        if number < attempt:
            trial = folded(
                ended(number, TrialState.WAITING, Ending.FAILED, failure="crashed"), trial=trial
            )
    return trial


def report(sequence: int, step: int, attempt: int = 1, **metrics: float) -> Report:
    return Report(0, attempt, sequence, step, metrics or {"loss": 1.0 / (step + 1)}, float(step))


def ended(
    attempt: int, state: TrialState, ending: Ending = Ending.COMPLETED, **fields: object
) -> Ended:
    failure = fields.get("failure")
    outcome = Outcome(0, attempt, ending, seconds=2.0, **fields)  # type: ignore[arg-type]
    return Ended(outcome, state, failure if state is TrialState.FAILED else None, at=9.0)  # type: ignore[arg-type]


def test_a_trial_from_proposal_to_completion() -> None:
    done = Ended(
        Outcome(0, 1, Ending.COMPLETED, {"bleu": 3.0}, seconds=2.0, peak_memory_bytes=7),
        TrialState.COMPLETED,
        at=9.0,
    )
    trial = folded(report(0, 1, loss=0.5), report(1, 2, loss=0.4, extra=1.0), done, trial=running())
    assert trial.state is TrialState.COMPLETED
    assert trial.metrics == {
        "loss": 0.4,
        "extra": 1.0,
        "bleu": 3.0,
        "seconds": 2.0,
        "peak_memory_bytes": 7.0,
    }
    assert [point.step for point in trial.reports] == [1, 2]
    assert (trial.attempts, trial.seconds, trial.peak_memory_bytes, trial.started, trial.ended) == (
        1,
        2.0,
        7,
        1.0,
        9.0,
    )


def test_a_trial_keeps_the_seconds_and_memory_that_it_reports_itself() -> None:
    done = Ended(
        Outcome(0, 1, Ending.COMPLETED, {"seconds": 0.5}, seconds=2.0, peak_memory_bytes=7),
        TrialState.COMPLETED,
    )
    trial = folded(report(0, 1, loss=0.5, peak_memory_bytes=3.0), done, trial=running())
    assert trial.metrics == {"loss": 0.5, "seconds": 0.5, "peak_memory_bytes": 3.0}
    assert trial.seconds == 2.0


def test_seconds_of_a_resumed_trial_are_those_of_all_attempts() -> None:
    paused = folded(report(0, 1), ended(1, TrialState.PAUSED, Ending.PAUSED), trial=running())
    assert paused.metrics["seconds"] == 2.0
    again = folded(Moved(0, TrialState.WAITING), Begun(0, 2), report(0, 2, attempt=2), trial=paused)
    trial = folded(ended(2, TrialState.COMPLETED), trial=again)
    assert trial.metrics["seconds"] == trial.seconds == 4.0
    assert trial.ended == 9.0
    assert paused.ended is None


def test_a_retry_supersedes_the_reports_beyond_its_checkpoint() -> None:
    first = folded(*(report(i, 10 * i, loss=float(i)) for i in range(4)), trial=running())
    waiting = folded(ended(1, TrialState.WAITING, Ending.FAILED, failure="crashed"), trial=first)
    trial = folded(Begun(0, 2), report(0, 20, attempt=2, loss=0.1), trial=waiting)
    assert [(point.attempt, point.step) for point in trial.reports] == [(1, 0), (1, 10), (2, 20)]
    assert (trial.metrics["loss"], trial.retries) == (0.1, 1)


def test_a_retry_forgets_what_only_superseded_reports_said() -> None:
    first = folded(report(0, 0, loss=3.0), report(1, 10, bleu=9.0), trial=running())
    waiting = folded(ended(1, TrialState.WAITING, Ending.FAILED, failure="crashed"), trial=first)
    trial = folded(Begun(0, 2), report(0, 5, attempt=2, loss=2.0), trial=waiting)
    assert trial.metrics == {"loss": 2.0}


def test_an_attempt_ends_in_no_state_that_cannot_follow() -> None:
    with pytest.raises(AutomlError, match="from running to"):
        fold(running(), ended(1, TrialState.RUNNING))


def test_an_attempt_cannot_be_left_out() -> None:
    with pytest.raises(AutomlError, match="attempt 3 of trial 0 cannot follow attempt 1"):
        fold(
            folded(Moved(0, TrialState.INTERRUPTED), Moved(0, TrialState.WAITING), trial=running()),
            Begun(0, 3),
        )


def test_nothing_happens_to_a_trial_that_was_never_proposed() -> None:
    with pytest.raises(AutomlError, match="never proposed"):
        fold(None, Begun(0, 1))


@pytest.mark.parametrize("before", TrialState)
@pytest.mark.parametrize("after", TrialState)
def test_only_the_transitions_of_the_table_are_allowed(
    before: TrialState, after: TrialState
) -> None:
    trial = replace(running(), state=before)
    if after in TRANSITIONS[before]:
        assert folded(Moved(0, after), trial=trial).state is after
    elif after is before:
        assert fold(trial, Moved(0, after)) is trial
    else:
        with pytest.raises(AutomlError, match=f"from {before} to {after}"):
            check_transition(before, after)
        with pytest.raises(AutomlError):
            fold(trial, Moved(0, after))


_attempts = st.sampled_from([1, 1, 1, 1, 2, 2, 3])
_events = st.one_of(
    st.just(Proposed(0, PARAMS, "bayes")),
    st.builds(Begun, st.just(0), _attempts, st.floats(0, 10)),
    st.builds(Started, st.just(0), _attempts, st.just("host:1")),
    st.builds(
        Report,
        st.just(0),
        _attempts,
        st.integers(0, 4),
        st.integers(0, 9),
        st.fixed_dictionaries({"loss": st.floats()}),
        st.floats(0, 10),
    ),
    st.builds(
        lambda attempt, state: ended(
            attempt,
            state,
            Ending.FAILED if state in (TrialState.FAILED, TrialState.WAITING) else Ending.COMPLETED,
            **({"failure": "crashed"} if state is TrialState.FAILED else {}),
        ),
        _attempts,
        st.sampled_from(
            [TrialState.COMPLETED, TrialState.FAILED, TrialState.WAITING, TrialState.PAUSED]
        ),
    ),
    st.builds(Moved, st.just(0), st.sampled_from(list(TrialState))),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_events, max_size=30))
def test_any_sequence_of_events_keeps_a_trial_consistent(events: list[SweepEvent]) -> None:
    trial: Trial | None = fold(fold(None, Proposed(0, PARAMS, "bayes")), Begun(0, 1))
    for event in events:
        try:
            after = fold(trial, event)
        except AutomlError:
            continue
        if trial is not None and after is not None:
            assert after.params == trial.params
            assert after.attempts - trial.attempts in (0, 1)
            assert after.seconds >= trial.seconds
            if trial.state.finished:
                assert after is trial
            elif after.state is not trial.state:
                assert after.state in TRANSITIONS[trial.state]
        trial = after
        if trial is None:
            continue
        keys = [(point.attempt, point.sequence) for point in trial.reports]
        assert keys == sorted(set(keys))
        assert (trial.failure is not None) <= (trial.state is TrialState.FAILED)
        assert (trial.ended is None) or trial.state.finished
        if not isinstance(event, Begun | Moved):
            assert fold(trial, event) is trial  # once more changes nothing
