"""On a GPU the host reads nothing of an update before it has launched the next one."""

from __future__ import annotations

import pytest
import torch
from counting import Counting
from toy import Toy

from workers.context import Context
from workers.protocol import Ending
from workers.training import checkpoint
from workers.training import optimizers as step_module
from workers.training.optimizers import DeferredNumbers, can_skip


class Counted(Toy):
    """Counts how often the host would wait, at the beginning of each update."""

    def run(self, context: Context):
        self.waits = []
        with Counting() as self.counting:
            metrics = super().run(context)
        waits.append(
            [after - before for before, after in zip(self.waits[:-1], self.waits[1:], strict=True)]
        )
        return metrics

    def weight(self, batch):
        found = super().weight(batch)
        self.waits.append(self.counting.waits)
        return found


waits: list[list[int]] = []


def counted(context: Context):
    return Counted(context.params, {}, {}, seed=context.seed).run(context)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(step_module, "reading_waits", lambda device: True)


@pytest.mark.parametrize("named", [{}, {"optimizer": "sgd"}, {"precision": "fp16"}])
def test_an_update_waits_for_nothing(runner, as_on_a_gpu, named):
    runner.objective = counted
    outcome = runner(max_updates=6, **named)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    found = waits.pop()
    assert found[:10] == [1] * 10, "only the weights of a batch and of its rows, on the CPU"


def test_a_scale_that_is_read_late_is_the_same(runner, monkeypatch):
    settings = {"precision": "fp16", "max_updates": 6, "evaluate_updates": 1, "bad": "slope"}
    runner.objective = exploding
    found = {}
    for late in (False, True):
        monkeypatch.setattr(step_module, "reading_waits", lambda device, late=late: late)
        outcome = runner(**settings)
        scaler = checkpoint.load(runner.folder).progress["scaler"]
        found[late] = (outcome.metrics["skipped_updates"], scaler["scale"], runner.losses())
    assert found[False][:2] == found[True][:2] == (3, 65536.0 / 8)
    assert found[True][2] == pytest.approx(found[False][2], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_losses_are_the_same_whether_they_are_read_late_or_not(runner, monkeypatch, optimizer):
    settings = {"optimizer": optimizer, "max_updates": 7, "evaluate_updates": 1}
    runner(**settings)
    at_once = runner.losses()
    monkeypatch.setattr(step_module, "reading_waits", lambda device: True)
    runner(**settings)
    assert runner.losses() == pytest.approx(at_once, rel=1e-6)
    assert len(at_once) == 7


class Exploding(Toy):
    """Its gradients (or its losses) are not finite in every second update."""

    def criterion(self, output, batch):
        loss = super().criterion(output, batch)
        self.calls = getattr(self, "calls", 0) + torch.is_grad_enabled()
        if self.calls % 2:
            return loss
        return loss * float("inf") if self.option("bad") == "loss" else loss + nan_slope(output)


def nan_slope(output):
    return (output * 0).sum().sqrt()


def exploding(context: Context):
    return Exploding(context.params, {}, {}, seed=context.seed).run(context)


def test_a_loss_that_is_not_finite_fails_with_its_own_update(runner, as_on_a_gpu):
    runner.objective = exploding
    outcome = runner(bad="loss", max_updates=6)
    assert outcome.failure == "non_finite"
    assert outcome.message.endswith("at update 2")


def test_the_newest_numbers_are_left_until_they_are_asked_for():
    numbers = DeferredNumbers()
    for value in (1.0, 2.0, 3.0):
        numbers.add(torch.tensor(value), torch.tensor(value != 2.0))
    assert numbers.take() == [(1.0, True), (2.0, False)]
    assert numbers.take() == []
    assert numbers.take(newest=True) == [(3.0, True)]


def test_only_fused_kernels_on_the_device_can_skip():
    parameter = torch.nn.Parameter(torch.zeros(2))
    cpu = torch.device("cpu")
    assert can_skip(torch.optim.AdamW([parameter], fused=True), cpu)
    assert not can_skip(torch.optim.AdamW([parameter], foreach=True), cpu)
    assert not can_skip(torch.optim.AdamW([parameter], fused=True), torch.device("cuda")), "offload"
