"""The standings that follow a sweep event by event are those of all of its trials."""

from __future__ import annotations

import random
from dataclasses import replace

from automl.core import Begun, Created, Ended, Goal, Proposed, Snapshot, SweepSpec, SweepState
from automl.core.goals import parse_constraints
from automl.core.snapshot import INFEASIBLE, Standings
from automl.core.trial import Trial, TrialState
from search_spaces import Float, Space
from workers.protocol import Ending, Outcome, Report

SPACE = Space(Float("x", 0.0, 1.0))
SPEC = SweepSpec("toy", SPACE, (Goal("loss"), Goal("size")), parse_constraints("size <= 10"))


def events(rng: random.Random, number: int) -> list[object]:
    metrics = {"loss": rng.random(), "size": rng.uniform(0.0, 20.0)}
    ends = [
        (Ending.COMPLETED, TrialState.COMPLETED, None),
        (Ending.STOPPED, TrialState.STOPPED, None),
        (Ending.PAUSED, TrialState.PAUSED, None),
        (Ending.FAILED, TrialState.FAILED, "crashed"),
    ]
    ending, state, failure = rng.choice(ends)
    outcome = Outcome(number, 1, ending, metrics, failure=failure)
    return [
        Proposed(number, {"x": 0.5}, "random"),
        Begun(number, 1, float(number)),
        Report(number, 1, 0, 1, {"loss": rng.random()}, 1.0),
        Ended(outcome, state, failure, at=number + rng.uniform(1.0, 9.0)),
    ]


def test_following_a_sweep_gives_the_standings_of_all_trials() -> None:
    rng, state, followed = random.Random(0), SweepState(), Standings()
    state.apply(Created(SPEC.to_dict()))
    rest = [events(rng, number) for number in range(30)]
    number = 0
    while number < 30:
        new = [event for one in rest[number : number + rng.randint(1, 4)] for event in one]
        number = 1 + max(event.trial for event in new)  # type: ignore[attr-defined]
        for event in new:
            state.apply(event)  # type: ignore[arg-type]
        snapshot = replace(Snapshot.of(state, "running", 99.0), events=new)
        followed.follow(snapshot)
        whole = Standings.of(snapshot)
        assert followed.values == whole.values
        assert followed.counts() == whole.counts()
        assert followed.trajectory() == whole.trajectory()
        best = snapshot.best
        assert followed.best() == (best and best.number)
    counts = followed.counts()
    assert sum(counts.values()) == 30
    assert counts[INFEASIBLE] > 3
    assert len(followed.numbers(TrialState.FAILED)) == counts["failed"] > 3


def test_the_best_so_far_follows_the_order_of_ends() -> None:
    trials = [
        Trial(number, {}, TrialState.COMPLETED, {"bleu": bleu}, ended=at)
        for number, (bleu, at) in enumerate([(20.0, 99.0), (10.0, 60.0), (15.0, 90.0)])
    ]
    shown = Snapshot("s", "running", trials, (Goal("bleu", maximize=True),))
    assert Standings.of(shown).trajectory() == [-10.0, -15.0, -20.0]
