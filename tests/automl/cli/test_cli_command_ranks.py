"""A command on two ranks: they meet as under torchrun, pause together and go on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_sweeps import automl

TRAIN = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, state = dist.get_rank(), pathlib.Path(os.environ["AUTOML_CHECKPOINT_DIR"], "epoch")
done = int(state.read_text()) if os.environ.get("AUTOML_RESUME") else 0
for epoch in range(done + 1, 10):
    loss = torch.tensor([float(sys.argv[1]) + rank])
    dist.all_reduce(loss)
    if rank == 0:
        with open("epochs.txt", "a") as log:
            print(os.environ["AUTOML_TRIAL"], epoch, file=log)
        state.write_text(str(epoch))
        print(f"epoch {epoch} val_loss {loss.item() / 2 + 1 / epoch:.3f}")
    if epoch in (1, 3) and done < epoch:  # long enough for a decision
        time.sleep(0.5)
    stop = torch.tensor([os.path.exists(os.environ["AUTOML_STOP"])])
    dist.broadcast(stop, 0)
    if stop:
        print("rank", rank, "stops")
        break
dist.destroy_process_group()
"""
CONFIG = r"""
name: mine
goals: minimize loss
space: {x: {low: 0.0, high: 1.0}}
budget: {trials: 3}
max_steps: 9
ranks: 2
workers: 2
suggester: sobol
stopper: {name: asha, grace: 1, factor: 3}
reports: {loss: 'val_loss (\S+)', step: 'epoch (\d+)'}
"""


def test_ranks_pause_together_and_train_no_epoch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text(CONFIG)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    command = ("--", sys.executable, "train.py", "{x}")
    done = automl("sweep", "mine.yaml", "--dispatcher", "local", *command)
    assert done.exit_code == 0, done.output
    trials = json.loads(automl("trials", "mine", "--json").stdout)
    assert {trial["state"] for trial in trials} <= {"completed", "paused", "stopped"}, trials
    epochs = [tuple(map(int, line.split())) for line in Path("epochs.txt").read_text().splitlines()]
    assert len(set(epochs)) == len(epochs) < 3 * 9
    for trial in trials:
        own = [epoch for number, epoch in epochs if number == trial["number"]]
        assert own == list(range(1, len(own) + 1))
        expected = trial["params"]["x"] + 0.5 + 1 / len(own)
        assert trial["metrics"]["loss"] == pytest.approx(expected, abs=1e-3)
    logs = [log.read_text() for log in Path(".automl").rglob("attempt-1-rank-*.log")]
    assert len(logs) == 2 * 3
    assert sum("rank 0 stops" in log for log in logs) > 0
    assert sum("rank 0 stops" in log for log in logs) == sum("rank 1 stops" in log for log in logs)
