"""Knobs that a configuration must name: each computes the same losses as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import list_mode_options
from toy import Toy

from search_spaces.errors import UsageError
from search_spaces.knobs import table
from search_spaces.knobs.table import Float8Knob
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.training.setup import compile_model
from workers.workloads.translation import loss as translation_loss

CPU = torch.device("cpu")
UPDATES = {"max_updates": 4, "evaluate_updates": 1}
TINY = {
    "width": 16,
    "num_layers": 1,
    "num_heads": 2,
    "vocabulary_size": 250,
    "eval_sentences": 2,
    "max_length": 40,
    "batch_tokens": 256,
    "evaluate_seconds": None,
    **UPDATES,
}


@pytest.mark.parametrize("named", ["attention_backend=math", "deterministic=True"])
def test_kernels_compute_the_same(runner: Any, named: str) -> None:
    runner(**UPDATES)
    plain = runner.losses()
    name, _, value = named.partition("=")
    runner(**UPDATES, **{name: value == "True" or value})
    assert runner.losses() == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("mode", ["layers", "selective"])
def test_every_second_layer_keeps_its_activations(runner: Any, mode: str) -> None:
    kept = {}
    losses = {}
    for every in (1, 2):
        outcome = runner(**UPDATES, activation_checkpointing=mode, checkpoint_every=every)
        table = outcome.details["memory_by_module_bytes"]
        kept[every] = {name: size for name, size in table.items() if "inner" in name}
        losses[every] = runner.losses()
    assert losses[1] == pytest.approx(losses[2], rel=1e-6)
    grown = [name for name in kept[2] if kept[2][name] > kept[1].get(name, 0)]
    assert [name.split(".")[1] for name in grown] == ["1", "3"], kept


def test_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **given: compiled.append((self, given)))
    model = Toy({}, {}, {}).build_model()
    layers = ("layers.0", "layers.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    compile_model(model, layers, {"compile": "max-autotune"})
    assert compiled == [(model, {"mode": "max-autotune"})]
    compiled.clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    compile_model(model, layers, {"compile": "max-autotune"})
    options = {**list_mode_options("max-autotune"), "layout_optimization": False}
    assert compiled == [(model, {"options": options})]
    compiled.clear()
    compile_model(model, layers, {"compile": "cudagraphs", "compile_scope": "layers"})
    assert compiled == [(model.get_submodule(n), {"backend": "cudagraphs"}) for n in layers]
    compiled.clear()
    compile_model(model, layers, {"compile_scope": "layers"})
    assert compiled == []


def translated(folder: Path, **params: Any) -> list[float]:
    reports: list[Any] = []
    attempt = Assignment(
        "s", 0, 1, params, "translation", str(folder), {"train": 150, "valid": 4}, TINY, seed=3
    )
    outcome = run(Context(attempt, reports.append))
    assert outcome.failure is None, outcome.details["traceback"]
    return [report.metrics["train_loss"] for report in reports]


def test_a_loss_in_chunks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = translated(tmp_path / "1", chunked_loss=False)
    assert translated(tmp_path / "2", chunked_loss=True) == pytest.approx(whole, rel=1e-5)
    calls = []
    chunked = translation_loss.linear_cross_entropy
    monkeypatch.setattr(
        "workers.workloads.translation.model.linear_cross_entropy",
        lambda *given: calls.append(given) or chunked(*given),
    )
    translated(tmp_path / "3", chunked_loss=False)
    assert calls == []
    translated(tmp_path / "4")  # a CPU's own choice
    assert len(calls) == UPDATES["max_updates"]


def large(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def test_float8_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"float8": "rowwise", "precision": "bf16"}
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="float8 needs the package torchao: pip install"):
        Float8Knob().change(large(64), values)
    monkeypatch.setattr(table, "find_spec", lambda name: name)
    with pytest.raises(UsageError, match=r"float8 needs an NVIDIA GPU of capability 9\.0"):
        Float8Knob().change(large(64), values)
    Float8Knob().change(large(64), {})


def test_float8_takes_large_layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao's own conversion, with its products computed in fp32 for want of a GPU."""
    torchao = pytest.importorskip("torchao.float8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(table, "MIN_FEATURES", 64)
    plain = torchao.convert_to_float8_training

    def emulated(model: nn.Module, *, config: Any, module_filter_fn: Any) -> nn.Module:
        assert config.pad_inner_dim
        object.__setattr__(config, "emulate", True)
        return plain(model, config=config, module_filter_fn=module_filter_fn)

    monkeypatch.setattr(torchao, "convert_to_float8_training", emulated)
    torch.manual_seed(0)
    model = large(128)
    reference = [parameter.detach().clone() for parameter in model.parameters()]
    names = list(model.state_dict())
    values = {"float8": "rowwise", "precision": "bf16"}
    outputs = []
    for change in (False, True):
        if change:
            Float8Knob().change(model, values)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs.append(model(torch.ones(7, 64) / 8))
        outputs[-1].float().sum().backward()
    assert [type(part).__name__ for part in model] == ["Float8Linear", "ReLU", "Linear"]
    assert list(model.state_dict()) == names
    torch.testing.assert_close(list(model.parameters()), [nn.Parameter(p) for p in reference])
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0.1, atol=0.05)
    assert not torch.equal(outputs[0], outputs[1])
