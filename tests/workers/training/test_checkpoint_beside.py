"""Checkpoints that a thread writes while the training goes on, as on a GPU."""

from __future__ import annotations

import threading

import pytest
import torch
from toy import Toy

from workers.context import Context
from workers.training import checkpoint

TRIAL = {"max_updates": 8, "checkpoint_updates": 2, "checkpoint_seconds": None, "optimizer": "sgd"}
updates = threading.Semaphore(0)


class Counting(Toy):
    """Counts its updates for the thread that writes."""

    def weight(self, batch):
        updates.release()
        return super().weight(batch)


def counting(context: Context):
    return Counting(context.params, {}, {}, seed=context.seed).run(context)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    beside = checkpoint.writes_beside
    monkeypatch.setattr(
        checkpoint, "writes_beside", lambda device, found: beside(torch.device("cuda"), found)
    )


def test_training_goes_on_while_a_checkpoint_is_written(runner, monkeypatch, as_on_a_gpu):
    """What is written is the state at its update, and until then the one before is the newest."""
    runner.objective = counting
    write = checkpoint.save
    seen = []

    def slow(folder, update, found, **named):
        beside = threading.current_thread() is not threading.main_thread()
        before = checkpoint.load(runner.folder)
        while updates.acquire(blocking=False):
            pass
        went_on = beside and updates.acquire(timeout=30.0)
        seen.append((update, before and before.progress["updates"], beside, went_on))
        return write(folder, update, found, **named)

    monkeypatch.setattr(checkpoint, "save", slow)
    outcome = runner(**TRIAL)
    assert outcome.failure is None, outcome.message
    assert seen[:2] == [(2, None, True, True), (4, 2, True, True)]
    assert seen[-1][0] == 8
    assert not seen[-1][2], "the last one is awaited"


def test_a_disk_that_is_full_fails_the_trial(runner, monkeypatch, as_on_a_gpu):
    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    outcome = runner(**TRIAL)
    assert outcome.failure == "preempted"
    assert "No space left" in outcome.message


def test_a_container_with_little_room_gets_no_second_copy(runner, monkeypatch, as_on_a_gpu):
    threads = []
    write = checkpoint.save

    def noted(*given, **named):
        threads.append(threading.current_thread())
        return write(*given, **named)

    monkeypatch.setattr(checkpoint, "save", noted)
    monkeypatch.setattr(checkpoint, "memory_limit", lambda: 2**20)
    assert runner(**TRIAL).failure is None
    assert set(threads) == {threading.main_thread()}
