"""Every knob: its parameters, the values that hardware cannot run, and its adjustments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from resolved import CPU, NEW, OLD, by_name, choices, resolve

from search_spaces import Float, Space, SpaceError
from search_spaces.hardware import Hardware
from search_spaces.knobs import KNOBS
from search_spaces.parameters import parameter_from_dict


def one_space(hardware: Hardware, *names: str) -> Space:
    """The space of some knobs; conditions name what their parents can be."""
    declared = [KNOBS.get(name)().resolve(hardware) for name in names]
    found = {p.name: p for one in declared for p in one.parameters}
    parameters = []
    for parameter in found.values():
        left = {
            parent: [value for value in values if found[parent].legal(value)]
            for parent, values in parameter.when.items()
        }
        if all(left.values()):
            parameters.append(parameter_from_dict({**parameter.to_dict(), "when": left}))
    return Space(*parameters, constraints=[text for one in declared for text in one.constraints])


@pytest.fixture(params=KNOBS.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("hardware", [CPU, OLD, NEW], ids=["cpu", "old", "new"])
def test_every_knob_has_a_legal_default_and_says_why_it_leaves_values_out(
    name: str, hardware: Hardware
) -> None:
    knob, found = KNOBS.get(name)(), resolve(name, hardware)
    assert (knob.name, found) == (name, resolve(name, hardware))
    assert knob.summary
    with pytest.raises(SpaceError, match=f"knob '{name}' has no option 'no-such-option'"):
        knob.resolve(hardware, {"no-such-option": []})
    parents = {parent for option in knob.options for parent in option.requires}
    owners = {option.name: other for other in KNOBS.names() for option in KNOBS.get(other).options}
    space = one_space(hardware, *sorted({owners[one] for one in parents & owners.keys()} | {name}))
    assert found.parameters or found.dropped
    for params in (space.default(), *space.sample(np.random.default_rng(0), 50)):
        space.accept(params)
    for dropped in found.dropped:
        assert dropped.reason
        parameter = space.parameters.get(dropped.parameter)
        assert parameter is None or not parameter.legal(dropped.value)


def test_no_two_knobs_have_an_option_of_one_name() -> None:
    options = [option for name in KNOBS.names() for option in KNOBS.get(name).options]
    assert len({option.name for option in options}) == len(options)
    assert all(option.help for option in options)
    assert all(set(KNOBS.get(name).on_request) <= set(options) for name in KNOBS.names())


def test_every_default_trains_and_leaves_nothing_behind(name: str) -> None:
    knob = KNOBS.get(name)()
    values = {option.name: option.unset for option in knob.options}
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
    before = {key: tensor.shape for key, tensor in model.state_dict().items()}
    settings = torch.get_num_threads(), torch.get_float32_matmul_precision()
    knob.change(model, values)
    for _ in range(2):
        with knob.applied(values):
            model(torch.ones(2, 4)).sum().backward()
    assert {key: tensor.shape for key, tensor in model.state_dict().items()} == before
    assert settings == (torch.get_num_threads(), torch.get_float32_matmul_precision())


def test_all_knobs_make_one_space() -> None:
    space = one_space(NEW, *KNOBS.names())
    assert space.default() is not None
    same = {
        "attention_layout",
        "parallelism",
        "ranks",
        "matmul_precision",
        "compile",
        "activation_checkpointing",
    }
    same |= {
        "accumulation",
        "loader_workers",
        "prefetch",
    }
    same |= {
        "attention_backend",
        "bucket_megabytes",
        "checkpoint_every",
        "chunked_loss",
        "compile_scope",
        "cpu_offload",
        "deterministic",
        "pipeline_degree",
        "shard_degree",
        "tensor_degree",
    }
    result = {
        "learning_rate",
        "warmup_updates",
        "weight_decay",
        "momentum",
        "dropout",
        "label_smoothing",
    }
    for name, parameter in space.parameters.items():
        expected = {"speed", "memory"} if name in same else {"quality"} if name in result else None
        assert parameter.affects == (expected or {"quality", "speed", "memory"}), name


def test_precision() -> None:
    on_cpu = resolve("precision")
    assert choices(on_cpu, "precision") == ["fp32", "bf16"]
    assert [str(dropped) for dropped in on_cpu.dropped] == [
        "precision 'tf32': needs a CUDA GPU of capability 8.0 or later; "
        "this machine has no CUDA GPU",
        "precision 'fp16': emulated",
    ]
    assert choices(resolve("precision", precision=["fp32", "fp16"]), "precision") == [
        "fp32",
        "fp16",
    ]
    assert choices(resolve("precision", OLD), "precision") == ["fp32", "fp16"]
    assert choices(resolve("precision", NEW), "precision") == ["fp32", "tf32", "bf16", "fp16"]
    with pytest.raises(
        SpaceError, match="no value left that this machine can run: precision 'tf32'"
    ):
        resolve("precision", precision=["tf32"])


def test_batch() -> None:
    tokens = by_name(resolve("batch", batch_tokens=[1024, 4096], accumulation=False))
    assert list(tokens) == ["batch_tokens"]
    assert tokens["batch_tokens"].default == 1024
    ranged = by_name(resolve("batch", batch_size={"low": 8, "high": 32}))
    assert repr(ranged["batch_size"]) == "Int('batch_size', 8, 32, log=True, default=32)"
    assert resolve("batch").constraints == ["batch_size >= accumulation"]


def test_optimizer() -> None:
    assert by_name(resolve("optimizer"))["momentum"].when == {"optimizer": ("sgd",)}
    assert "momentum" not in by_name(resolve("optimizer", optimizer=["adam", "adamw"]))
    assert "momentum" not in by_name(resolve("optimizer", optimizer=False))
    alone = by_name(
        resolve("optimizer", optimizer=False, momentum=True, learning_rate={"high": 1e-4})
    )
    assert alone["momentum"].when == {}
    rate = alone["learning_rate"]
    assert isinstance(rate, Float)
    assert (rate.low, rate.high, rate.default) == (1e-5, 1e-4, 1e-4)


@pytest.mark.parametrize("adjustment", [3, "auto", {"hihg": 3}])
def test_malformed_adjustments_are_refused(adjustment: Any) -> None:
    with pytest.raises(SpaceError, match="dropout"):
        resolve("architecture", dropout=adjustment)


def test_runtime_on_cpu_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", sys.executable)  # something that is there
    on_cpu, on_gpu = resolve("runtime", cpus=2), resolve("runtime", NEW)
    assert choices(on_cpu, "threads") == [1, 2]
    assert by_name(on_cpu)["threads"].default == 2
    assert by_name(on_cpu)["threads"].affects == {"speed"}
    assert "threads" not in by_name(on_gpu)
    assert "reduce-overhead" in choices(on_gpu, "compile")
    assert "memory_format" not in by_name(on_gpu)
    assert "memory_format" in by_name(resolve("runtime", NEW, memory_format=True))
    for gpu in (OLD, NEW):  # tf32 has one name there, and it is a precision
        dropped = resolve("runtime", gpu).dropped
        tf32 = {str(d.value): d.reason for d in dropped if d.parameter == "matmul_precision"}
        assert set(tf32) == {"high", "medium"}
        assert tf32["high"] == "is tf32 on a GPU, which is a value of precision"
    graphs = [d.value for d in on_cpu.dropped if "CUDA graphs" in d.reason]
    assert graphs[0] == "reduce-overhead"


@pytest.mark.parametrize("lacks", ["a C compiler", "Python's header files"])
def test_compiling_for_gpus_needs_what_triton_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacks: str
) -> None:
    monkeypatch.setenv("CC", sys.executable)  # something that is there
    assert choices(resolve("runtime", NEW), "compile") == ["off", "default", "reduce-overhead"]
    if lacks == "a C compiler":
        monkeypatch.setenv("CC", "no-compiler")
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    found = resolve("runtime", NEW)
    assert "compile" not in by_name(found)
    reasons = {str(d.value): d.reason for d in found.dropped if d.parameter == "compile"}
    for mode in ("default", "reduce-overhead", "max-autotune"):
        assert reasons[mode].startswith(f"torch.compile needs {lacks} on GPUs (for Triton), ")


def test_runtime_takes_what_is_asked_for() -> None:
    tuned = resolve(
        "runtime",
        tune=["matmul_precision", "prefetch"],
        matmul_precision={"when": {"precision": "fp32"}},
    )
    assert list(by_name(tuned)) == ["matmul_precision", "prefetch"]
    assert by_name(tuned)["matmul_precision"].when == {"precision": ("fp32",)}
    assert by_name(tuned)["prefetch"].when == {}
    assert [
        d.value
        for d in resolve("runtime", cpus=2, threads=[1, 2, 4]).dropped
        if d.parameter == "threads"
    ] == [4]
    assert by_name(resolve("runtime"))["prefetch"].when == {"loader_workers": (1,)}
    assert by_name(resolve("runtime", loader_workers=[0, 2, 4]))["prefetch"].when == {
        "loader_workers": (2, 4)
    }
    assert by_name(resolve("runtime", loader_workers=False))["prefetch"].when == {}


def test_no_compiler_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    declared = resolve("runtime")
    assert "compile" not in by_name(declared)
    assert any("needs a C++ compiler" in dropped.reason for dropped in declared.dropped)
