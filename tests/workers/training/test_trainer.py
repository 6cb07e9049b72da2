"""The training loop: limits, stop requests, exact resumption, failures."""

from __future__ import annotations

import json

import pytest
import torch
from toy import Toy

from workers.protocol import Ending, Limits, StopRequest


def test_a_pause_in_mid_epoch_does_not_change_the_curve(runner):
    settings = {"max_epochs": 2, "evaluate_updates": 1, "dropout": 0.3}
    assert runner(**settings).ending is Ending.COMPLETED
    whole = runner.losses()
    runner.folder /= "second"
    paused = runner(
        **settings, stop_requested=lambda: StopRequest.PAUSE if len(runner.losses()) > 3 else None
    )
    before = runner.losses()
    assert paused.ending is Ending.PAUSED
    assert 0 < len(before) < len(whole)
    assert max(before) % 10, "the pause is to be in the middle of an epoch"
    finished = runner(**settings, resume=True)
    assert finished.ending is Ending.COMPLETED
    assert before | runner.losses() == whole
    assert set(before).isdisjoint(runner.losses())


def test_resuming_a_finished_run_trains_no_more(runner):
    first = runner(max_updates=3)
    second = runner(max_updates=3, resume=True)
    assert second.metrics["updates"] == 3
    assert second.metrics["loss"] == first.metrics["loss"]


def test_a_damaged_checkpoint_is_skipped_and_reported(runner):
    runner(max_updates=6, evaluate_updates=1)
    whole = runner.losses()
    runner.folder /= "second"
    runner(max_updates=2)
    runner(max_updates=4, resume=True)
    older, newest = sorted((runner.folder / "checkpoints").iterdir())[-2:]
    with (newest / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    outcome = runner(max_updates=6, evaluate_updates=1, resume=True)
    assert outcome.details["damaged_checkpoints"] == [newest.name]
    assert runner.losses() == {
        update: loss for update, loss in whole.items() if update > int(older.name)
    }


def test_accumulation_computes_the_same(runner):
    runner(max_updates=5, evaluate_updates=1)
    whole = runner.losses()
    runner(max_updates=5, evaluate_updates=1, accumulation=3)
    assert runner.losses() == pytest.approx(whole, rel=1e-5)


def test_loader_thread_and_recomputation_compute_the_same(runner):
    runner(max_updates=6, evaluate_updates=1, dropout=0.1)
    whole = runner.losses()
    runner(max_updates=6, evaluate_updates=1, dropout=0.1, loader_workers=1)
    assert runner.losses() == whole
    for how in ("layers", "selective"):
        runner(max_updates=6, evaluate_updates=1, dropout=0.1, activation_checkpointing=how)
        assert runner.losses() == pytest.approx(whole, rel=1e-5)


def test_a_trace_of_some_updates_changes_nothing(runner):
    runner(max_updates=6, evaluate_updates=1)
    whole = runner.losses()
    runner(max_updates=6, evaluate_updates=1, profile_updates=2)
    assert runner.losses() == whole
    trace = json.loads(next((runner.folder / "profile").glob("rank-0.*.json")).read_text())
    steps = {
        event["name"]
        for event in trace["traceEvents"]
        if event.get("name", "").startswith("ProfilerStep#")
    }
    assert len(steps) == 2


class SlowEvaluation(Toy):
    def evaluate(self, model, device):
        import time

        time.sleep(0.5)
        return super().evaluate(model, device)


def slow_evaluation(context):
    return SlowEvaluation(context.params, {}, {}, seed=0).run(context)


def test_evaluation_is_no_training_time(runner):
    runner.objective = slow_evaluation
    outcome = runner(max_updates=2, evaluate_updates=1)
    assert outcome.seconds > 1.0
    assert outcome.metrics["train_seconds"] < 1.0
    assert runner.reports[-1].seconds == outcome.metrics["train_seconds"]


def test_the_time_limit_sums_over_attempts(runner):
    outcome = runner(max_epochs=10_000, limits=Limits(train_seconds=0.5))
    assert outcome.ending is Ending.COMPLETED
    assert 0.5 <= outcome.metrics["train_seconds"] < 2.0
    again = runner(max_epochs=10_000, limits=Limits(train_seconds=0.5), resume=True)
    assert again.metrics["updates"] == outcome.metrics["updates"]


class Endless(Toy):
    def evaluate(self, model, device):
        while True:
            super().evaluate(model, device)


def endless(context):
    return Endless(context.params, {}, {}, seed=0).run(context)


def test_a_stop_request_ends_an_evaluation(runner):
    runner.objective = endless
    calls = iter(range(10))
    outcome = runner(
        max_updates=1, stop_requested=lambda: StopRequest.STOP if next(calls, 9) > 4 else None
    )
    assert outcome.ending is Ending.STOPPED


class Exploding(Toy):
    def criterion(self, output, batch):
        bad = {"loss": float("inf"), "gradient": 1.0}[self.option("explode")]
        loss = super().criterion(output, batch)
        if bad == 1.0 and self.calls % 2:
            loss = loss + (output * 0).sum().sqrt()  # value 0, gradient nan
        self.calls += 1
        return loss * bad

    calls = 0

    def evaluate(self, model, device):
        return {"loss": sum(float(p.sum()) for p in model.parameters())}


def exploding(context):
    return Exploding(context.params, {}, {}, seed=0).run(context)


def test_a_loss_that_is_not_finite_fails(runner):
    runner.objective = exploding
    outcome = runner(explode="loss")
    assert outcome.failure == "non_finite"
    assert "inf" in outcome.message


def test_gradients_that_are_not_finite_are_skipped_and_counted(runner):
    runner.objective = exploding
    outcome = runner(explode="gradient", max_updates=4)
    assert outcome.ending is Ending.COMPLETED
    assert outcome.metrics["skipped_updates"] == 2
    assert torch.isfinite(torch.tensor(outcome.metrics["loss"]))


def test_a_memory_limit_is_kept(runner):
    outcome = runner(limits=Limits(memory_bytes=1000), max_epochs=10_000)
    assert outcome.failure == "out_of_memory"


@pytest.mark.parametrize(
    "bad", [{"precision": "fp8"}, {"optimizer": "lion"}, {"parallelism": "sideways"}]
)
def test_an_unknown_value_is_named(runner, bad):
    outcome = runner(**bad)
    assert outcome.failure == "crashed"
    assert repr(next(iter(bad.values()))) in outcome.message
