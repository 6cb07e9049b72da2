"""The promises of every stopper.

A plugin runs them with `pytest --automl-conformance`: each stopper of an entry point is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import automl
from automl.core.trial import TrialState
from automl.dispatch.simulated.faults import Crashes
from automl.simulation import Simulation
from automl.stopping import STOPPERS
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


@pytest.fixture(params=STOPPERS.installed())
def stopper(request: pytest.FixtureRequest) -> str:
    """The name of the stopper that is tested."""
    return str(request.param)


def simulate(stopper: str, goals: Any = "minimize loss", **options: Any) -> Simulation:
    """Thirty trials of `curve` by four workers on a virtual clock."""
    defaults: dict[str, Any] = {"workers": 4, "trials": 30, "suggester": "random", "seed": 3}
    return automl.simulate(curve, SPACE, goals, stopper=stopper, **{**defaults, **options})


def steps(result: Simulation) -> int:
    """How many steps all trials made together."""
    return sum(len(trial.reports) for trial in result.trials)


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
    """Every trial ends, trial 0 as a whole, and each decision is recorded with its reason."""
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
    """The same reports lead to the same decisions, also if trials crash."""
    first, second = (simulate(stopper, faults=(Crashes(100.0),)) for _ in range(2))
    assert list(first.trials) == list(second.trials)
    assert first.decisions == second.decisions
