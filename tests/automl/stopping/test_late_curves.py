"""Curves that say nothing at first: nobody is paused or stopped there, and nothing changes where they fall at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.core.goals import parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.stopping import STOPPERS as STOPPERS_BY_NAME
from automl.stopping._informative import Informative
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0, default=0.9), Float("y", 0.0, 1.0, default=0.5))
STEPS, FLAT = 15, 8
STOPPERS = ("asha", "curve", "hyperband", "median")


def falling(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, STEPS + 1):
        yield 1.0, {"loss": (params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2 + 1.0 / step}


def flat(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """As accuracy by chance: who is ahead by a little there is behind at the end."""
    end = (params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2
    for step in range(1, STEPS + 1):
        yield 1.0, {"loss": 5.0 - 0.001 * end if step <= FLAT else end + 1.0 / (step - FLAT)}


def rising(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for (seconds, metrics), step in zip(flat(params), range(1, STEPS + 1), strict=True):
        yield seconds, {"loss": metrics["loss"] + (0.1 * step if step <= FLAT else 0.0)}


def simulate(replay: Any, stopper: str) -> automl.simulation.Simulation:
    return automl.simulate(
        replay, SPACE, "minimize loss", stopper=stopper, workers=4, trials=24, suggester="random"
    )


@pytest.mark.parametrize("stopper", STOPPERS)
@pytest.mark.parametrize("replay", [flat, rising])
def test_nobody_is_stopped_on_the_flat_part(replay: Any, stopper: str) -> None:
    result = simulate(replay, stopper)
    few = [trial.number for trial in result.trials if len(trial.reports) < FLAT]
    assert len(few) <= 3, "only those that had the worker's slot before trial 0's second report"
    assert result.best is not None
    assert len(result.best.reports) == STEPS


@pytest.mark.parametrize("stopper", ["asha", "median"])
def test_where_curves_fall_at_once_nothing_changes(
    stopper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = simulate(falling, stopper).decisions
    assert any(note.kind in ("pause", "stop") for note in found)
    monkeypatch.setattr(Informative, "observe", lambda self, trial: None)
    assert found == simulate(falling, stopper).decisions


def test_no_trial_is_paused_at_what_is_known_to_be_its_end() -> None:
    """Its length is not told: where completed ones have ended, a pause would only keep it from counting."""
    options: Any = {"workers": 8, "seconds": STEPS * 60 / 8, "stopper": "curve"}
    result = automl.simulate(falling, SPACE, "minimize loss", **options)
    paused = [note.message for note in result.decisions if note.kind == "pause"]
    assert paused
    assert not [message for message in paused if message.endswith(f"go on from {STEPS}")]


@pytest.mark.parametrize(("num_reports", "action"), [(STEPS - 1, "stop"), (STEPS, "continue")])
def test_a_hopeless_trial_that_cannot_pause_is_stopped_unless_it_is_at_its_end(
    num_reports: int, action: str
) -> None:
    stopper = STOPPERS_BY_NAME.get("curve")(
        parse_goals("minimize loss"), space=SPACE, can_pause=False
    )
    trials = []
    for number in range(13):
        params = {"x": 0.3 + 0.01 * number if number < 12 else 1.0, "y": 0.6}
        points = list(falling(params))[: STEPS if number < 12 else num_reports]
        reports = tuple(
            ReportPoint(i + 1, metrics, i + 1.0) for i, (_, metrics) in enumerate(points)
        )
        state = TrialState.COMPLETED if number < 12 else TrialState.RUNNING
        trials.append(Trial(number, params, state, attempts=1, reports=reports))
        stopper.observe(trials[-1])
    assert stopper.decide(trials[-1], trials).action == action


def test_completed_trials_tell_where_the_order_is_that_of_the_end() -> None:
    """Trial 0 improves from the first report on, but until step 8 those that are ahead are behind at the end."""
    informative = Informative(parse_goals("minimize loss"))
    for number in range(40):
        end = (number * 7 % 40) / 40
        early = [
            1.0 / step if number == 0 else 2.0 - end - 0.1 * step for step in range(1, FLAT + 1)
        ]
        losses = [*early, *(end - 0.01 * step for step in range(FLAT + 1, STEPS + 1))]
        reports = tuple(
            ReportPoint(i + 1, {"loss": loss}, i + 1.0) for i, loss in enumerate(losses)
        )
        informative.observe(Trial(number, {}, TrialState.COMPLETED, attempts=1, reports=reports))
        if number == 0:
            assert informative.since == 0.0
    assert FLAT - 2 < informative.since <= FLAT + 2
