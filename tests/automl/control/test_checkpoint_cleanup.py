from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from objectives import make_spec

from automl.control.controller import CheckpointCleanup
from automl.core.trial import ReportPoint, Trial, TrialState
from workers.files import Folder


def trial(number: int, state: TrialState, loss: float) -> Trial:
    return Trial(
        number, {}, state, metrics={"loss": loss}, reports=(ReportPoint(1, {"loss": loss}, 1.0),)
    )


def write(folder: Path, number: int, size: int = 1000) -> Path:
    path = folder / "trials" / str(number) / "checkpoints" / "00000001"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"0" * size)
    return path


def test_failed_and_stopped_trials_lose_their_checkpoints_the_best_does_not(tmp_path: Path) -> None:
    states = [
        TrialState.STOPPED,
        TrialState.STOPPED,
        TrialState.FAILED,
        TrialState.PAUSED,
        TrialState.COMPLETED,
    ]
    trials = [trial(i, state, float(1 + (i != 1))) for i, state in enumerate(states)]
    paths = [write(tmp_path, i) for i in range(5)]
    checkpoints = CheckpointCleanup(make_spec(), Folder(tmp_path))
    for one in trials:
        checkpoints.clean(one, trials)
    assert [path.exists() for path in paths] == [False, True, False, True, True]
    trials[4] = replace(trials[4], metrics={"loss": 0.5}, reports=())
    checkpoints.clean(trials[4], trials)
    assert not paths[1].exists(), "a better one has come"
