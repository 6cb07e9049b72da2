"""The warm-up: no trial is paused or stopped before reports predict the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.core.goals import parse_goals
from automl.core.trial import ReportPoint, Trial, TrialState
from automl.stopping import STOPPERS as STOPPERS_BY_NAME
from automl.stopping._warmup import WarmUp
from automl.sweeps import Simulation
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0, default=0.9), Float("y", 0.0, 1.0, default=0.5))
STEPS, FLAT = 15, 8
STOPPERS = ("asha", "curve", "hyperband", "median")


def falling(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for step in range(1, STEPS + 1):
        yield 1.0, {"loss": (params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2 + 1.0 / step}


def flat(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Until step `FLAT` the ranking is the reverse of the final one."""
    end = (params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2
    for step in range(1, STEPS + 1):
        yield 1.0, {"loss": 5.0 - 0.001 * end if step <= FLAT else end + 1.0 / (step - FLAT)}


def rising(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    for (seconds, metrics), step in zip(flat(params), range(1, STEPS + 1), strict=True):
        yield seconds, {"loss": metrics["loss"] + (0.1 * step if step <= FLAT else 0.0)}


def simulate(replay: Any, stopper: str) -> Simulation:
    return automl.simulate(
        replay, SPACE, "minimize loss", stopper=stopper, workers=4, trials=24, suggester="random"
    )


@pytest.mark.parametrize("stopper", STOPPERS)
@pytest.mark.parametrize("replay", [flat, rising])
def test_no_trial_is_stopped_on_the_flat_part(replay: Any, stopper: str) -> None:
    result = simulate(replay, stopper)
    few = [trial.number for trial in result.trials if len(trial.reports) < FLAT]
    assert len(few) <= 3, "only those that had the worker's slot before trial 0's second report"
    assert result.best is not None
    assert len(result.best.reports) == STEPS


def test_no_trial_is_paused_at_the_step_at_which_others_completed() -> None:
    """The length is not known; a pause at the end would only keep the trial from counting."""
    options: Any = {"workers": 8, "seconds": STEPS * 60 / 8, "stopper": "curve"}
    result = automl.simulate(falling, SPACE, "minimize loss", **options)
    paused = [note.message for note in result.decisions if note.kind == "pause"]
    assert paused
    assert not [message for message in paused if message.startswith(f"curve: at {STEPS} ")]


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


def test_the_warmup_is_learned_from_completed_trials() -> None:
    """Trial 0 improves from its first report; of the others, early leaders lose at the end."""
    warmup = WarmUp(parse_goals("minimize loss"))
    for number in range(40):
        end = (number * 7 % 40) / 40
        early = [
            1.0 / step if number == 0 else 2.0 - end - 0.1 * step for step in range(1, FLAT + 1)
        ]
        losses = [*early, *(end - 0.01 * step for step in range(FLAT + 1, STEPS + 1))]
        reports = tuple(
            ReportPoint(i + 1, {"loss": loss}, i + 1.0) for i, loss in enumerate(losses)
        )
        warmup.observe(Trial(number, {}, TrialState.COMPLETED, attempts=1, reports=reports))
        if number == 0:
            assert warmup.end == 0.0
    assert FLAT - 2 < warmup.end <= FLAT + 2
