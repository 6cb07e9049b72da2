"""A real model that is paused and promoted again and again ends like one that was left alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import automl
from automl import sweeps
from automl.core import Budget, Snapshot, SweepSpec, Trial, TrialState, parse_goals
from automl.ledger import Ledger
from automl.stopping import STOPPERS
from automl.stopping.base import Decision, Stopper
from search_spaces import Float, Space
from workers.workloads import WORKLOADS


class Restless(Stopper):
    """Pauses every trial after each of its first three reports; resumes the longest paused."""

    name = "restless"

    def decide(self, trial: Trial, trials: Sequence[Trial]) -> Decision:
        return Decision("pause", "others first") if trial.attempts <= 3 else Decision("continue")

    def resume(self, trials: Sequence[Trial], *, last: bool = False) -> tuple[int, str] | None:
        paused = [trial for trial in trials if trial.state is TrialState.PAUSED]
        return (
            (min(paused, key=lambda trial: trial.attempts).number, "its turn")
            if paused and last
            else None
        )


def run(folder: Path) -> Snapshot:
    kind = WORKLOADS.get("graph_embedding")
    spec = SweepSpec(
        "pauses",
        Space(Float("learning_rate", 0.01, 0.3, log=True)),
        parse_goals("maximize mrr"),
        workload=kind.name,
        data=kind.smallest["data"],
        fixed={**kind.smallest["fixed"], "max_epochs": 4},
        budget=Budget(trials=2),
        suggester="random",
        workers=1,
    )
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(spec)
    return sweeps.run(spec, ledger=ledger, dispatcher="inline")


def test_paused_trials_end_with_the_metrics_of_uninterrupted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole")
    monkeypatch.setattr(STOPPERS, "get", lambda name: Restless)
    parts = run(tmp_path / "parts")
    assert [trial.state for trial in parts.trials] == [TrialState.COMPLETED] * 2
    assert max(trial.attempts for trial in parts.trials[1:]) > 1
    for one, other in zip(whole.trials, parts.trials, strict=True):
        same = [key for key in one.metrics if "second" not in key and "bytes" not in key]
        assert "mrr" in same
        assert {key: one.metrics[key] for key in same} == {key: other.metrics[key] for key in same}
        assert [p.step for p in one.reports] == [p.step for p in other.reports]


@pytest.mark.parametrize("resumable", [True, False])
def test_an_objective_is_paused_only_if_it_is_resumable(tmp_path: Path, resumable: bool) -> None:
    reached: dict[int, int] = {}  # the objective's own checkpoint: the last step of each trial

    def objective(trial: Any) -> dict[str, float]:
        loss = 1.0
        for step in range(reached.get(trial.number, 0) + 1, 10):
            reached[trial.number] = step
            loss = trial.params["x"] + 1.0 / step
            if not trial.report(step=step, loss=loss):
                break
        return {"loss": loss}

    objective.resumable = resumable  # type: ignore[attr-defined]
    result = automl.sweep(
        objective,
        Space(Float("x", 0.0, 1.0)),
        "minimize loss",
        trials=12,
        suggester="random",
        stopper="asha",
        dispatcher="inline",
        store=str(tmp_path),
        progress=False,
        max_steps=9,
    )
    resumed = [trial for trial in result.trials if trial.attempts > 1]
    assert bool(resumed) == resumable
    for trial in result.trials:
        steps = [point.step for point in trial.reports]
        assert steps == list(range(1, len(steps) + 1)), "no step was made twice"
        seconds = [point.seconds for point in trial.reports]
        assert seconds == sorted(seconds), "training seconds go on after a pause"
