"""A user's function on several ranks and with pauses, on each dispatcher that has workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl
from automl.core.trial import TrialState
from automl.errors import UsageError
from search_spaces import Choice, Space

pytestmark = pytest.mark.timeout(300)
SPACE = Space(Choice("num_gpus", [1, 2]))


@pytest.fixture(params=["local", "ray"])
def dispatcher(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("shared_ray")
    return str(request.param)


def distributed(trial: Any) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    (trial.folder / f"pid-{trial.rank}").write_text(str(os.getpid()))
    trial.barrier()
    pids = {file.read_text() for file in trial.folder.glob("pid-*")}
    trial.report(step=1, loss=float(total))
    return {"loss": float(total), "processes": len(pids)}


def test_the_ranks_of_a_trial_are_processes_that_meet(tmp_path: Path, dispatcher: str) -> None:
    result = automl.sweep(
        distributed,
        SPACE,
        "minimize loss",
        trials=2,
        workers=2,
        ranks="num_gpus",
        suggester="random",
        dispatcher=dispatcher,
        store=tmp_path,
        max_retries=0,
    )
    expected = {1: (1.0, 1), 2: (3.0, 2)}
    found = [(t.params["num_gpus"], t.metrics, t.message) for t in result.trials]
    assert {number for number, _, _ in found} == {1, 2}
    for number, metrics, message in found:
        assert (metrics.get("loss"), metrics.get("processes")) == expected[number], message


def test_more_ranks_than_slots_is_one_error(tmp_path: Path, dispatcher: str) -> None:
    with pytest.raises(UsageError, match="ranks is 99, and there are"):
        automl.sweep(
            distributed,
            SPACE,
            "minimize loss",
            trials=2,
            ranks=99,
            dispatcher=dispatcher,
            store=tmp_path,
        )


def resumable(trial: Any) -> dict[str, float]:
    """Writes each epoch that it trains to a log of its own."""
    state = trial.restore() or {"epoch": 0, "weights": np.zeros(3)}
    assert trial.resumed == (state["epoch"] > 0)
    loss = 9.0
    for epoch in range(state["epoch"] + 1, 10):
        with (trial.folder / "own.log").open("a") as log:
            log.write(f"{epoch}\n")
        time.sleep(0.04)  # a decision to pause arrives within a few epochs, on a busy machine too
        weights = state["weights"] + trial.params["rate"]
        state = {"epoch": epoch, "weights": weights}
        loss = float(np.abs(weights - 5.0).sum())
        trial.save(state)
        if not trial.report(step=epoch, loss=loss):
            break
    return {"loss": loss}


@pytest.mark.parametrize("stopper", ["asha", "curve", "hyperband"])
def test_a_function_that_is_paused_trains_no_epoch_twice(
    tmp_path: Path, dispatcher: str, stopper: str
) -> None:
    result = automl.sweep(
        resumable,
        {"rate": (0.0, 1.0)},
        "minimize loss",
        trials=16,
        workers=2,
        suggester="random",
        stopper=stopper,
        max_steps=9,
        dispatcher=dispatcher,
        store=tmp_path,
    )
    assert [trial.message for trial in result.trials if trial.state is TrialState.FAILED] == []
    assert any(trial.attempts > 1 for trial in result.trials), "one was paused and went on"
    logs = list(tmp_path.rglob("own.log"))
    assert len(logs) == len(result.trials)
    for log in logs:
        epochs = [int(line) for line in log.read_text().split()]
        assert epochs == list(range(1, len(epochs) + 1)), "no epoch was trained twice"
    assert [trial.state for trial in result.trials].count(TrialState.COMPLETED) > 0
