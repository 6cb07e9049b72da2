"""Tests of every stopping rule of the folder, then of some of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import automl
from automl.control.controller import conduct
from automl.core.goals import parse_goals
from automl.core.resources import Budget
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.dispatch.simulated import SimulatedDispatcher
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.sweeps import Simulation
from search_spaces import Float, Space

SPACE = Space(Float("x", 0.0, 1.0, default=0.9), Float("y", 0.0, 1.0, default=0.5))
STEPS = 27


def curve(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """A loss that falls to its end, an accuracy that rises, and a size that does not change."""
    end = (params["x"] - 0.3) ** 2 + 0.1 * (params["y"] - 0.6) ** 2
    for step in range(1, STEPS + 1):
        loss = end + 1.0 / step
        yield (
            1.0 + params["y"],
            {"loss": loss, "accuracy": 1.0 / (1.0 + loss), "size": params["y"]},
        )


def simulate(stopper: str, goals: Any = "minimize loss", **options: Any) -> Simulation:
    """Thirty trials of `curve` by four workers on a virtual clock."""
    defaults: dict[str, Any] = {"workers": 4, "trials": 30, "suggester": "random", "seed": 3}
    return automl.simulate(curve, SPACE, goals, stopper=stopper, **{**defaults, **options})


def steps(result: Simulation) -> int:
    """How many steps all trials made together."""
    return sum(len(trial.reports) for trial in result.trials)


STOPPING = sorted(set(STOPPERS.names()) - {"none"})


@pytest.fixture(params=STOPPERS.names())
def stopper(request: pytest.FixtureRequest) -> str:
    return str(request.param)


GOALS: list[tuple[Any, dict[str, Any]]] = [
    ("minimize loss", {}),
    ("maximize accuracy", {}),
    ("minimize loss", {"constraints": "size <= 0.4"}),
    (["minimize loss", "minimize size"], {}),
    (["maximize accuracy", "minimize size"], {"constraints": "size <= 0.8"}),
    ("minimize loss within 20s", {}),
    ("minimize loss", {"max_steps": STEPS}),
]


@pytest.mark.parametrize(("goals", "options"), GOALS, ids=lambda value: str(value).replace("'", ""))
def test_every_stopper_ends_a_sweep_properly(
    stopper: str, goals: Any, options: dict[str, Any]
) -> None:
    result = simulate(stopper, goals, **options)
    assert result.state == "finished"
    assert len(result.trials) == 30
    assert all(trial.state.finished for trial in result.trials)
    assert result.trials[0].state is TrialState.COMPLETED, "trial 0 is never stopped early"
    assert result.trials[0].attempts == 1
    for trial in result.trials:
        assert [point.step for point in trial.reports] == list(range(1, len(trial.reports) + 1))
    early = {trial.number for trial in result.trials if trial.state is TrialState.STOPPED}
    noted = {
        note.trial for note in result.decisions if note.kind in ("stop", "pause") and note.message
    }
    assert early <= noted, "each decision is in the ledger with its reason"


def test_every_stopper_decides_the_same_again(stopper: str) -> None:
    first, second = (simulate(stopper, mean_lifetime=100.0) for _ in range(2))
    assert list(first.trials) == list(second.trials)
    assert first.decisions == second.decisions


@pytest.mark.parametrize("stopper", STOPPING)
def test_every_stopper_saves_steps_and_keeps_good_trials(stopper: str) -> None:
    whole, part = simulate("none"), simulate(stopper)
    values = sorted(trial.metrics["loss"] for trial in whole.trials)
    assert any(trial.state is TrialState.STOPPED for trial in part.trials)
    assert part.best is not None
    assert part.best.metrics["loss"] <= values[2]
    assert steps(part) < 0.8 * steps(whole)


@pytest.mark.parametrize("stopper", STOPPING)
def test_every_stopper_goes_on_where_its_ledger_ends(stopper: str, tmp_path: Path) -> None:
    spec = SweepSpec(
        "parts",
        SPACE,
        parse_goals("minimize loss"),
        suggester="random",
        stopper=stopper,
        workers=4,
        seed=3,
    )
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(spec)
    snapshots = []
    for trials in (12, 24):
        spec = replace(spec, budget=Budget(trials=trials))
        made = SimulatedDispatcher(curve, 4)
        snapshots.append(
            conduct(spec, ledger, SimulatedDispatcher, lambda made=made: made, resume=True)
        )
    assert len(snapshots[1].trials) == 24
    assert list(snapshots[1].trials[:12]) == list(snapshots[0].trials)
    best = snapshots[1].best
    assert best is not None
    assert len(best.reports) == STEPS


def test_asha_promotes_a_third_from_each_level() -> None:
    result = simulate("asha", trials=81, max_steps=STEPS)
    reached = [len(trial.reports) for trial in result.trials]
    counts = [sum(length >= level for length in reached) for level in (1, 3, 9, 27)]
    assert counts[0] == 81
    for more, fewer in itertools.pairwise(counts):
        assert more / 3 - 1 <= fewer <= more / 3 + 12
    assert set(reached) == {1, 3, 9, 27}
    moved = [trial for trial in result.trials if trial.attempts > 1]
    assert moved, "some were promoted from a pause"
    assert all(
        trial.state is TrialState.COMPLETED
        for trial in result.trials
        if len(trial.reports) == STEPS
    )


@pytest.mark.parametrize(("suggester", "guided"), [("bayes", True), ("random", False)])
def test_curve_chooses_configurations_under_the_default_suggester(
    suggester: str, guided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    kind = STOPPERS.get("curve")
    monkeypatch.setattr(kind, "propose", lambda self, trials: asked.append(self.guided))
    simulate("curve", trials=4, suggester=suggester)
    assert set(asked) == ({True} if guided else set())
