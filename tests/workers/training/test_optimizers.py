"""Optimizers that a configuration must name: what they take and keep, and how they resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.training.optimizers import OptimizerParts, build_optimizer, step

RULES = ("adafactor", "muon")
FIXED = {
    "width": 16,
    "num_layers": 1,
    "num_heads": 2,
    "vocabulary_size": 250,
    "eval_sentences": 2,
    "max_length": 40,
    "batch_tokens": 256,
    "evaluate_seconds": None,
    "evaluate_updates": 1,
}


def parameters() -> dict[str, nn.Parameter]:
    torch.manual_seed(0)
    shapes = {"embedding.weight": (6, 4), "inner.weight": (4, 4), "inner.bias": (4,)}
    found = {name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()}
    for parameter in found.values():
        parameter.grad = torch.randn_like(parameter)
    return found


def test_muon_takes_the_matrices_inside_and_adamw_the_rest() -> None:
    options = {"optimizer": "muon", "weight_decay": 0.1}
    ours = parameters()
    optimizer = build_optimizer(ours, options, ("embedding.*",))
    assert isinstance(optimizer, OptimizerParts)
    muon, adamw = parameters(), parameters()
    rule: Any = {"betas": (0.9, 0.98), "eps": 1e-9}
    references = (
        torch.optim.Muon([muon["inner.weight"]], weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([adamw["embedding.weight"]], weight_decay=0.1, **rule),
        torch.optim.AdamW([adamw["inner.bias"]], weight_decay=0.0, **rule),
    )
    for rate in (0.01, 0.02):
        for group in (g for one in (optimizer, *references) for g in one.param_groups):
            group["lr"] = rate
        step(optimizer)
        for reference in references:
            reference.step()
    expected = {**adamw, "inner.weight": muon["inner.weight"]}
    for name, parameter in ours.items():
        torch.testing.assert_close(parameter, expected[name], rtol=0, atol=1e-6)
        assert optimizer.state[parameter]
    optimizer.zero_grad(set_to_none=True)
    assert all(parameter.grad is None for parameter in ours.values())


def trained(folder: Path, updates: int, resume: bool = False, **params: Any) -> list[float]:
    reports: list[Any] = []
    attempt = Assignment(
        "s", 0, 1 + resume, params, "translation", str(folder), {"train": 150, "valid": 4},
        {**FIXED, "max_updates": updates}, seed=3, resume=resume,
    )  # fmt: skip
    outcome = run(Context(attempt, reports.append))
    assert outcome.failure is None, outcome.details["traceback"]
    return [report.metrics["train_loss"] for report in reports]


@pytest.mark.parametrize("layout", ["interleaved", "packed"])
@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_training_goes_on_as_if_it_had_not_paused(
    tmp_path: Path, rule: str, layout: str
) -> None:
    options = {"optimizer": rule, "attention_layout": layout}
    whole = trained(tmp_path / "1", 4, **options)
    first = trained(tmp_path / "2", 2, **options)
    rest = trained(tmp_path / "2", 4, resume=True, **options)
    assert [*first, *rest][-4:] == pytest.approx(whole, rel=1e-6)
