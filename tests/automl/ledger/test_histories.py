"""The fold of what was read equals what the recorder had, for random histories."""

from __future__ import annotations

import random
from typing import Any

import pytest
from objectives import make_spec

from automl.core import SpecChanged
from automl.core.events import (
    Answered,
    Begun,
    Closed,
    Command,
    Ended,
    Leased,
    Moved,
    Noted,
    Proposed,
    SweepEvent,
)
from automl.core.trial import Trial, TrialState
from automl.ledger import Ledger
from workers.protocol import Ending, Outcome, Report, Started, StopRequest

ENDINGS = {
    Ending.COMPLETED: TrialState.COMPLETED,
    Ending.STOPPED: TrialState.STOPPED,
    Ending.PAUSED: TrialState.PAUSED,
    Ending.FAILED: TrialState.WAITING,
    Ending.INTERRUPTED: TrialState.INTERRUPTED,
}


def of_a_trial(rng: random.Random, trial: Trial) -> SweepEvent:
    """Something that can happen to a trial, or a late event."""
    number, attempt = trial.number, trial.attempts
    if trial.state is TrialState.WAITING:
        return Begun(number, attempt + 1, rng.random(), rng.randrange(1, 4))
    if trial.state is TrialState.RUNNING:
        kind = rng.randrange(6)
        if kind < 3:
            sequence = rng.randrange(4)
            loss = rng.choice([rng.random(), float("nan"), float("inf")])
            return Report(number, attempt, sequence, 10 * sequence, {"loss": loss}, 1.0)
        if kind == 3:
            asked = rng.choice([None, *StopRequest])
            return Leased(number, attempt, "ann", 60.0, 1e9, asked, "ü\ud800\0", held=bool(asked))
        if kind == 4:
            return Started(number, attempt, f"host:{rng.randrange(9)}")
        ending = rng.choice(list(ENDINGS))
        failure = "crashed" if ending is Ending.FAILED else None
        outcome = Outcome(
            number, attempt, ending, {"loss": rng.random()}, failure, "é" * rng.randrange(5000),
            rng.random(), rng.choice([None, 2**40]), {"n": [1]}, held=rng.random() < 0.5,
            worker_lost=bool(failure), exception="ValueError" if failure else "",
        )  # fmt: skip
        return Ended(outcome, ENDINGS[ending], failure, "", rng.random())
    if trial.state in (TrialState.PAUSED, TrialState.INTERRUPTED):
        return Moved(number, TrialState.WAITING, "goes on", rng.random())
    return Report(number, attempt, 99, 990, {"loss": 0.0}, 1.0)  # too late


def next_event(rng: random.Random, trials: list[Trial]) -> SweepEvent:
    """Something that can happen to a sweep."""
    kind = rng.random()
    if not trials or kind < 0.15:
        params = {"lr": rng.random(), "shape": (1, rng.randrange(9))}
        return Proposed(len(trials), params, "sobol", rng.random())
    if kind < 0.2:
        return rng.choice([Noted("note", "x" * 9), Closed("finished", "done", at=rng.random())])
    return of_a_trial(rng, rng.choice(trials))


def facts(state: Any) -> str:
    """Everything that a state has; nan is not equal to itself."""
    kept = {name: value for name, value in vars(state).items() if name != "index"}
    kept["_spec"] = state.spec.to_dict()
    kept["_use"] = {name: one for name, one in vars(state.use).items() if name != "_spec"}
    kept["trials"] = list(map(vars, state.trials))
    kept["environment"] = dict(state.environment)
    return repr(sorted(kept.items()))


def happen(rng: random.Random, ledger: Any) -> Any:
    """A history of a sweep; its recorder."""
    ledger.create_sweep(make_spec(), {"git_commit": "abc"})
    recorder = ledger.hold("test")
    for _ in range(rng.randrange(1, 60)):
        kind = rng.random()
        if kind < 0.1:
            content = {"lr": {"low": 1e-4, "high": rng.random()}}
            ledger.append("test", Command(rng.choice(["limits", "enqueue", "stop"]), content))
        elif kind < 0.13:
            ledger.append("test", SpecChanged(make_spec(trials=rng.randrange(5, 50)).to_dict()))
        elif kind < 0.2:
            recorder.look()
        elif kind < 0.3:
            recorder.commit(rng.random())
        elif recorder.state.requests and kind < 0.4:
            recorder.apply(Answered(min(recorder.state.requests), {"ok": True}))
        else:
            recorder.apply(next_event(rng, recorder.state.trials))
    recorder.commit()
    return recorder


@pytest.mark.parametrize("part", range(4))
def test_what_is_read_is_what_the_recorder_had(part: int) -> None:
    for seed in range(60 * part, 60 * (part + 1)):
        ledger = Ledger.open("sqlite://", create=True)
        recorder = happen(random.Random(seed), ledger)
        assert facts(ledger.state("test")) == facts(recorder.state), seed
        ledger.close()
