"""Every knob: its parameters, the values that hardware cannot run, and its adjustments."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config.resolution import Tunable
from search_spaces import Choice, Float, Int, Space, SpaceError, UsageError
from search_spaces.hardware import Gpu, Hardware
from search_spaces.knobs import KNOBS, Option, table
from search_spaces.knobs.base import ON_REQUEST, KnobSpace
from search_spaces.knobs.table import DeterminismKnob, KernelsKnob
from search_spaces.parameters import Parameter, parameter_from_dict
from workers.parallel.strategies.pipeline import SCHEDULE
from workers.workloads import WORKLOADS

CPU = Hardware(2, 2**33, precisions=("fp32", "bf16", "fp16"), slow={"fp16": "emulated"})
OLD = Hardware(8, 2**34, (Gpu("T4", 2**34, (7, 5), False),), ("fp32", "fp16"), ("gloo", "nccl"))
NEW = Hardware(
    64,
    2**38,
    (Gpu("H200", 2**37, (9, 0), True),) * 4,
    ("fp32", "tf32", "bf16", "fp16"),
    ("gloo", "nccl"),
    rpc=False,
)


def resolve(name: str, hardware: Hardware = CPU, **options: Any) -> KnobSpace:
    return KNOBS.get(name)().resolve(hardware, options)


def by_name(declared: KnobSpace) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in declared.parameters}


def choices(declared: KnobSpace, name: str) -> list[Any]:
    parameter = by_name(declared)[name]
    assert isinstance(parameter, Choice)
    return list(parameter.choices)


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


@pytest.mark.parametrize(
    ("name", "hardware", "options", "left"),
    [
        ("precision", CPU, {}, ["fp32", "bf16"]),
        ("precision", CPU, {"precision": ["fp32", "fp16"]}, ["fp32", "fp16"]),
        ("precision", OLD, {}, ["fp32", "fp16"]),
        ("precision", NEW, {}, ["fp32", "tf32", "bf16", "fp16"]),
        ("threads", CPU, {"cpus": 2}, [1, 2]),
        ("compile", NEW, {}, ["off", "default", "reduce-overhead"]),
        ("compile", NEW, {"compile": ["off", "max-autotune"]}, ["off", "max-autotune"]),
        ("attention_backend", CPU, {}, ["auto", "flash", "math"]),
        ("attention_backend", OLD, {}, ["auto", "efficient", "math"]),
        ("attention_backend", NEW, {}, ["auto", "flash", "cudnn", "efficient", "math"]),
        ("parallelism", CPU, {"slots": 1}, ["single"]),
        ("parallelism", CPU, {"slots": 4}, ["single", "ddp"]),
        ("ranks", CPU, {"slots": 4}, [2, 4]),
        ("ranks", CPU, {"slots": 6}, [2, 4, 6]),
    ],
)
def test_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    hardware: Hardware,
    options: dict[str, Any],
    left: list[Any],
) -> None:
    monkeypatch.setenv("CC", sys.executable)  # something that is there
    [knob] = [one for one in KNOBS.names() if name in [o.name for o in KNOBS.get(one).options]]
    assert choices(resolve(knob, hardware, **options), name) == left


def test_why_precisions_are_left_out() -> None:
    assert [str(dropped) for dropped in resolve("precision").dropped] == [
        "precision 'tf32': needs a CUDA GPU of capability 8.0 or later; "
        "this machine has no CUDA GPU",
        "precision 'fp16': emulated",
    ]
    with pytest.raises(
        SpaceError, match="no value left that this machine can run: precision 'tf32'"
    ):
        resolve("precision", precision=["tf32"])


def test_batch() -> None:
    tokens = by_name(resolve("batch", batch_tokens=[1024, 4096], accumulation=False))
    assert {name: one.default for name, one in tokens.items()} == {"batch_tokens": 1024}
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
    assert alone["learning_rate"] == Float(
        "learning_rate", 1e-5, 1e-4, log=True, default=1e-4, affects="quality"
    )


@pytest.mark.parametrize("adjustment", [3, "auto", {"hihg": 3}])
def test_malformed_adjustments_are_refused(adjustment: Any) -> None:
    with pytest.raises(SpaceError, match="dropout"):
        resolve("architecture", dropout=adjustment)


def test_runtime_on_cpu_and_gpu() -> None:
    on_cpu, on_gpu = (by_name(resolve("runtime", hardware, cpus=2)) for hardware in (CPU, NEW))
    assert (on_cpu["threads"].default, on_cpu["threads"].affects) == (2, {"speed"})
    assert on_gpu.keys().isdisjoint({"memory_format", "matmul_precision"})
    assert "threads" not in by_name(resolve("runtime", NEW))
    assert "memory_format" in by_name(resolve("runtime", NEW, memory_format=True))
    for gpu in (OLD, NEW):  # tf32 has one name there, and it is a precision
        dropped = resolve("runtime", gpu).dropped
        tf32 = {str(d.value): d.reason for d in dropped if d.parameter == "matmul_precision"}
        text = "is tf32 on a GPU, which is a value of precision"
        assert tf32 == {"high": text, "medium": text}


@pytest.mark.parametrize("lacks", ["a C compiler", "Python's header files"])
def test_compiling_for_gpus_needs_what_triton_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacks: str
) -> None:
    monkeypatch.setenv("CC", sys.executable)  # something that is there
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


def test_products_in_8_bits_need_a_gpu_and_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    amd = replace(NEW, precisions=("fp32", "bf16", "fp16"))
    for hardware in (CPU, OLD, amd):
        [dropped] = resolve("float8", hardware).dropped
        assert str(dropped).endswith("needs an NVIDIA GPU of capability 9.0 or later")
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    [dropped] = resolve("float8", NEW).dropped
    assert str(dropped).endswith("pip install 'automl-sweep[float8]'")
    monkeypatch.setattr(table, "find_spec", lambda name: name)
    assert choices(resolve("float8", NEW), "float8") == ["off", "rowwise"]


def test_a_schedule_that_is_named_is_legal_by_construction() -> None:
    tunable = Tunable.of(WORKLOADS.get("translation"), lambda: NEW)
    lacking = tunable.unavailable("schedule")
    assert lacking == dict.fromkeys(SCHEDULE.on_request, ON_REQUEST)
    assert tunable.unavailable("schedule", explicit=True) == {}
    schedule = tunable.parameters["schedule"].to_dict()
    schedule |= {"choices": [*SCHEDULE.choices, *SCHEDULE.on_request]}
    parameters = {**tunable.parameters, "schedule": parameter_from_dict(schedule)}
    depth = parameter_from_dict({"name": "num_layers", "type": "int", "low": 1, "high": 8})
    parameters["num_layers"] = depth
    found = Space(*parameters.values(), constraints=tunable.constraints)
    drawn = found.sample(np.random.default_rng(0), 3000)
    piped = [one for one in drawn if one["parallelism"] == "pipeline"]
    assert {one["schedule"] for one in piped} == set(schedule["choices"])
    for one in piped:
        stages = one["ranks"] * (1 if one["schedule"] in SCHEDULE.choices else 2)
        assert one["num_layers"] >= stages, one


def test_shards_in_main_memory_need_a_gpu() -> None:
    assert resolve("offload").parameters == []
    assert str(resolve("offload").dropped[0]).startswith("cpu_offload True: trials run in main")
    found = by_name(resolve("offload", NEW))["cpu_offload"]
    assert found.when == {"parallelism": ("fsdp", "hsdp")}


@pytest.mark.parametrize("chosen", ["auto", "flash", "math"])
def test_the_library_is_chosen(chosen: str) -> None:
    with KernelsKnob().applied({"attention_backend": chosen}):
        assert torch.backends.cuda.flash_sdp_enabled() == (chosen != "math")
        assert torch.backends.cuda.math_sdp_enabled()


def test_algorithms_are_deterministic_for_the_trial_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with DeterminismKnob().applied({"deterministic": True}):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()


SIZE = Option("size", "of a test", 64, (16, 64, 256), ordered=True, log=True)


def built(option: Option, adjustment: Any) -> Parameter:
    adjusted = option.adjusted({option.name: adjustment})
    assert adjusted is not None
    return adjusted.build()


def test_a_choice_a_range_or_nothing() -> None:
    assert SIZE.build() == Choice("size", [16, 64, 256], ordered=True, default=64)
    assert built(SIZE, {"low": 8, "high": 32}) == Int("size", 8, 32, log=True, default=32)
    assert built(SIZE, [1, 2]) == Choice("size", [1, 2], ordered=True, default=2)
    assert SIZE.adjusted({"size": False}) is None
    share = Option("share", "of a test", 0.5, low=0.0, high=1.0)
    assert built(share, {"low": 0.7}) == Float("share", 0.7, 1.0, default=0.7)
    with pytest.raises(SpaceError, match="size is adjusted by False, a list"):
        SIZE.adjusted({"size": "big"})


def test_values_of_an_option() -> None:
    mode = Option("mode", "of a test", "fast", ("fast", "slow"), untuned=("exact",), unset="slow")
    assert [mode.value(given) for given in ({}, {"mode": "exact"})] == ["slow", "exact"]
    assert SIZE.value({"size": 3}) == 3
    with pytest.raises(UsageError, match="mode is one of fast, slow, exact, got 'fats'"):
        mode.value({"mode": "fats"})


STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "single": {"min_ranks": 1},
    "tensor": {"plan": ["tensor"], "constraints": ["num_heads % ranks == 0"]},
    "pipeline": {
        "plan": ["stages"],
        "constraints": ["num_layers >= ranks", "batch_size % microbatches == 0"],
        "parameters": [
            Choice("microbatches", [2, 4, 8], ordered=True, default=4).to_dict(),
            Choice("schedule", ["gpipe", "1f1b"], default="1f1b").to_dict(),
        ],
    },
    "data_pipeline": {
        "min_ranks": 4,
        "plan": ["stages"],
        "parameters": [Choice("microbatches", [2, 4, 8], ordered=True, default=4).to_dict()],
    },
    "embedding_server": {"plan": ["embeddings"], "rpc": True},
    "nccl_only": {"backends": ["nccl"]},
    "wide": {"min_ranks": 64},
}
EVERYTHING = ("tensor", "stages", "embeddings")


def test_parallelism_says_why_not() -> None:
    declared = resolve("parallelism", strategies=STRATEGIES, slots=2)
    assert choices(declared, "parallelism") == ["single", "ddp"]
    reasons = {str(dropped.value): dropped.reason for dropped in declared.dropped}
    assert reasons == {
        "tensor": "needs a workload that declares tensor",
        "pipeline": "needs a workload that declares stages",
        "data_pipeline": "needs a workload that declares stages",
        "embedding_server": "needs a workload that declares embeddings",
        "nccl_only": "needs torch built with NCCL and a CUDA GPU; here: gloo",
        "wide": "needs at least 64 ranks; there are 2 slots",
    }
    on_gpu = resolve("parallelism", NEW, strategies=STRATEGIES, plan=EVERYTHING)
    assert choices(on_gpu, "parallelism") == [
        "single",
        "ddp",
        "tensor",
        "pipeline",
        "data_pipeline",
        "nccl_only",
    ]
    assert {str(d.value) for d in on_gpu.dropped} == {"embedding_server", "wide"}


def test_every_sampled_strategy_can_run() -> None:
    declared = resolve(
        "parallelism", strategies=STRATEGIES, slots=8, plan=EVERYTHING, ranks=[2, 3, 4, 8, 16]
    )
    assert [(d.parameter, d.value) for d in declared.dropped if d.parameter == "ranks"] == [
        ("ranks", 16)
    ]
    model = [Int("num_layers", 1, 6), Choice("num_heads", [1, 2, 4]), Int("batch_size", 1, 64)]
    space = Space(*declared.parameters, *model, constraints=declared.constraints)
    met = set()
    for params in space.sample(np.random.default_rng(0), 3000):
        name, ranks = params["parallelism"], params.get("ranks")
        met.add((name, ranks))
        own = {"pipeline": {"microbatches", "schedule"}, "data_pipeline": {"microbatches"}}
        extra = params.keys() - {"parallelism", "num_layers", "num_heads", "batch_size"}
        assert extra == own.get(name, set()) | ({"ranks"} if name != "single" else set())
        assert name != "tensor" or params["num_heads"] % ranks == 0
        assert name != "pipeline" or params["num_layers"] >= ranks
        assert name != "pipeline" or params["batch_size"] % params["microbatches"] == 0
        assert name != "data_pipeline" or ranks >= 4
    assert {
        ("single", None),
        ("ddp", 8),
        ("tensor", 2),
        ("pipeline", 3),
        ("data_pipeline", 8),
    } <= met


def test_what_is_not_tuned_is_put_into_constraints() -> None:
    strategies = {name: STRATEGIES[name] for name in ("single", "ddp", "tensor")}
    declared = resolve(
        "parallelism",
        strategies=strategies,
        slots=8,
        plan=["tensor"],
        values={"num_heads": 4},
        ranks=[2, 3, 4, 8],
    )
    assert declared.constraints == ["parallelism != 'tensor' or ranks in (2, 4,)"]
    odd = resolve(
        "parallelism", strategies=strategies, slots=2, plan=["tensor"], values={"num_heads": 3}
    )
    assert choices(odd, "parallelism") == ["single", "ddp"]
    assert odd.dropped[0].reason == "needs 3 % ranks == 0, which no number of ranks here satisfies"


def test_choosing_among_strategies() -> None:
    declared = resolve(
        "parallelism", strategies=STRATEGIES, parallelism=["ddp", "single"], ranks={"default": 2}
    )
    assert (choices(declared, "parallelism"), declared.dropped) == (["single", "ddp"], [])
    with pytest.raises(SpaceError, match="parallelism is one of"):
        resolve("parallelism", parallelism=["dpp"])
    assert resolve("parallelism", parallelism=False).parameters == []
