"""Knobs that change the speed or the memory of training: each computes the same numbers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from strategies import run_all
from torch import nn
from toy import Toy

from search_spaces.knobs.table import RECORDS_GRAPHS
from workers.context import Context
from workers.protocol import Assignment, StopRequest
from workers.run import run
from workers.training import checkpoint
from workers.training.setup import compiles_by_shape, switches


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_matmul_precision_computes_the_same_on_fp32(runner, precision):
    runner(max_updates=6, evaluate_updates=1)
    exact = runner.losses()
    runner(max_updates=6, evaluate_updates=1, matmul_precision=precision)
    assert runner.losses() == pytest.approx(exact, rel=1e-2)
    assert torch.get_float32_matmul_precision() == "highest"


def images(folder, **params):
    """Training losses of the image model."""
    reports = []
    fixed = {
        "filters": 4,
        "dense_units": 16,
        "max_updates": 4,
        "evaluate_updates": 1,
        "batch_size": 16,
    }
    fixed |= {"dropout": 0.0, "dense_dropout": 0.0}  # masks are drawn in the order of memory
    attempt = Assignment(
        "s",
        0,
        1,
        params,
        "image_classification",
        str(folder),
        {"train": 120, "test": 40},
        fixed,
        seed=3,
    )
    outcome = run(Context(attempt, reports.append))
    assert outcome.failure is None, outcome.details["traceback"]
    return [report.metrics["train_loss"] for report in reports]


def test_channels_last_computes_the_same(tmp_path):
    plain = images(tmp_path / "1")
    assert images(tmp_path / "2", memory_format="channels_last") == pytest.approx(plain, rel=1e-5)


@pytest.mark.timeout(300)
def test_a_compiled_model_computes_the_same(tmp_path):
    plain = images(tmp_path / "1")
    compiled = images(tmp_path / "2", compile="default")
    assert compiled == pytest.approx(plain, rel=1e-4)


def test_switches_are_set_and_put_back():
    before = torch.get_num_threads()
    with switches({"threads": 2, "compact_memory": True}, threads=1):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


def test_recomputed_layers_keep_less_for_backward(runner):
    kept = {}
    for how in ("none", "selective", "layers"):
        outcome = runner(max_updates=1, activation_checkpointing=how)
        table = outcome.details["memory_by_module_bytes"]
        kept[how] = sum(table.values())
    assert kept["none"] > kept["selective"] >= kept["layers"]


def test_the_scale_of_the_loss_survives_a_pause(runner, monkeypatch):
    growing = partial(torch.amp.GradScaler, growth_interval=2)
    monkeypatch.setattr("torch.amp.GradScaler", growing)
    calls = iter(range(1000))
    runner(
        precision="fp16",
        max_updates=9,
        stop_requested=lambda: StopRequest.PAUSE if next(calls) > 4 else None,
    )
    paused = checkpoint.load(runner.folder).progress
    assert paused["scaler"]["scale"] > 65536.0
    runner(precision="fp16", max_updates=paused["updates"], resume=True)
    assert checkpoint.load(runner.folder).progress["scaler"] == paused["scaler"]


class Spare(Toy):
    """Has a layer that some updates do not reach, and counts the all-reduces of its training."""

    def build_model(self):
        model = super().build_model()
        if self.option("spare"):
            model.spare = nn.Linear(4, 4)
        return model

    def run(self, context):
        with torch.profiler.profile() as profile:
            metrics = super().run(context)
        counts = {event.key: event.count for event in profile.key_averages()}
        (context.folder / "all_reduces").write_text(str(counts.get("c10d::allreduce_", 0)))
        return metrics


def spare(context):
    return Spare({"spare": False, **context.params}, {}, {}, seed=context.seed).run(context)


def test_ddp_reduces_once_an_update_and_says_that_a_parameter_is_unused(tmp_path):
    common = {"parallelism": "ddp", "max_updates": 4, "evaluate_updates": 4}
    trials = [common, {**common, "accumulation": 4}, {**common, "spare": True}]
    once, parts, missed = run_all(tmp_path, trials, 2, spare)
    counts = [(tmp_path / str(index) / "all_reduces").read_text() for index in range(2)]
    assert counts[0] == counts[1] != "0"
    assert parts["loss"] == pytest.approx(once["loss"], rel=1e-5)
    assert missed["failure"] == "crashed"
    assert "unused" in missed["message"] or "reduction" in missed["message"]


@pytest.mark.parametrize("mode", RECORDS_GRAPHS)
def test_recorded_graphs_accumulate_no_gradients(runner, mode):
    outcome = runner(max_updates=2, compile=mode, accumulation=2)
    assert outcome.message == (
        f"UsageError: compile {mode!r} records CUDA graphs, which cannot accumulate gradients: "
        "accumulation must be 1, got 2"
    )


def test_a_training_that_records_graphs_marks_its_steps_and_has_few_shapes(runner, monkeypatch):
    marks, padded = [], []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    monkeypatch.setattr(nn.Module, "compile", lambda model, **arguments: None)
    monkeypatch.setattr(Toy, "bucketed", lambda self, batch: padded.append(1) or batch)
    assert runner(max_updates=3, compile="reduce-overhead").failure is None
    assert (len(marks), len(padded)) == (3, 0), "on a CPU every shape is as good"
    monkeypatch.setattr("workers.training.trainer.compiles_by_shape", lambda values, device: True)
    assert runner(max_updates=3, compile="default").failure is None
    assert len(marks) == 3
    assert len(padded) >= 3
    values = {"compile": "default"}
    assert compiles_by_shape(values, "cuda")
    assert not compiles_by_shape(values, "cpu")
    assert not compiles_by_shape({}, "cuda")
