"""Every parallelism strategy computes the function of `single`, on real gloo ranks."""

from __future__ import annotations

import pytest
import torch
from strategies import run_all

from workers.parallel import STRATEGIES
from workers.training import checkpoint

TWO = [
    {"parallelism": "ddp"},
    {"parallelism": "ddp", "static_graph": True},
    {"parallelism": "fsdp", "reshard_after_forward": True},
    {"parallelism": "fsdp", "reshard_after_forward": False},
    {"parallelism": "tensor"},
    {"parallelism": "tensor", "sequence_parallel": True},
    {"parallelism": "pipeline", "schedule": "gpipe"},
    {"parallelism": "pipeline", "schedule": "1f1b", "num_microbatches": 2},
    {"parallelism": "pipeline", "tied": True},
    {"parallelism": "embedding_server"},
]
FOUR = [
    {"parallelism": "data_tensor"},
    {"parallelism": "data_pipeline"},
    {"parallelism": "pipeline"},
]
COMMON = {
    "max_updates": 8,
    "evaluate_updates": 1,
    "optimizer": "sgd",
    "learning_rate": 0.3,
    "rows": 7,
}
BASES = [{}, {"tied": True}, {"precision": "bf16"}, {"accumulation": 2}, {"precision": "fp64"}]
TOLERANCE = {"bf16": 2e-2, "fp64": 1e-12}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The curves and final weights of `single`, by its settings."""
    folder = tmp_path_factory.mktemp("alone")
    results = run_all(folder, [{**COMMON, **base} for base in BASES], ranks=1)
    weights = [checkpoint.load(folder / str(index)).model for index in range(len(BASES))]
    return {
        str(base): (result, found)
        for base, result, found in zip(BASES, results, weights, strict=True)
    }


def check(alone, base, result, folder, tolerance=1e-5):
    reference, weights = alone[str(base)]
    assert result["failure"] is None, f"{result['message']}\n{result['traceback']}"
    found = checkpoint.load(folder).model
    assert result["train_loss"] == pytest.approx(reference["train_loss"], rel=tolerance)
    assert result["loss"] == pytest.approx(reference["loss"], rel=tolerance)
    assert found.keys() == weights.keys()
    if tolerance <= 1e-5:
        for name, tensor in weights.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("ranks", "strategies"), [(2, TWO), (4, FOUR)])
def test_losses_and_weights_are_those_of_single(tmp_path, alone, ranks, strategies):
    results = run_all(tmp_path, [{**COMMON, **strategy} for strategy in strategies], ranks)
    for index, (strategy, result) in enumerate(zip(strategies, results, strict=True)):
        base = {key: value for key, value in strategy.items() if key == "tied"}
        check(alone, base, result, tmp_path / str(index))


def test_accumulation_bf16_and_fp64_under_every_strategy(tmp_path, alone):
    """In fp64, where rounding is out of the question, the curves are the same to the last digits."""
    trials = [
        {"parallelism": name, **base}
        for name in sorted({s["parallelism"] for s in TWO})
        for base in BASES[2:]
    ]
    results = run_all(tmp_path, [{**COMMON, **trial} for trial in trials], 2)
    for index, (trial, result) in enumerate(zip(trials, results, strict=True)):
        base = {key: value for key, value in trial.items() if key != "parallelism"}
        check(
            alone,
            base,
            result,
            tmp_path / str(index),
            tolerance=TOLERANCE.get(base.get("precision"), 1e-5),
        )


def test_a_run_goes_on_under_any_other_strategy(tmp_path):
    """One run handed from strategy to strategy every two updates is the run of `single`."""
    names = ["single", "ddp", "fsdp", "tensor", "pipeline", "embedding_server", "fsdp", "single"]
    common = {"evaluate_updates": 1, "dropout": 0.0, "optimizer": "adamw"}
    relay = [
        {
            **common,
            "parallelism": name,
            "max_updates": 2 * turn,
            "resume": turn > 1,
            "folder": "relay",
        }
        for turn, name in enumerate(names, 1)
    ]
    results = run_all(tmp_path, [*relay, {**common, "max_updates": 2 * len(names)}], 2)
    for result in results:
        assert result["failure"] is None, f"{result['message']}\n{result['traceback']}"
    joined = {step: loss for result in results[:-1] for step, loss in result["train_loss"].items()}
    assert joined == pytest.approx(results[-1]["train_loss"], rel=1e-5)
    assert len(joined) == 2 * len(names)


def test_every_strategy_is_here():
    tested = {"single", *(trial["parallelism"] for trial in TWO + FOUR)}
    assert tested == {name.replace("-", "_") for name in STRATEGIES.names()}
