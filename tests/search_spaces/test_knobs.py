from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from search_spaces import Choice, Float, Int, Space, SpaceError
from search_spaces.hardware import Gpu, Hardware
from search_spaces.knobs import KNOBS, Knob
from search_spaces.knobs.base import KnobSpace
from search_spaces.parameters import Parameter

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
    "nccl_only": {"backends": ["nccl"], "devices": ["cuda"]},
    "wide": {"min_ranks": 64},
}
EVERYTHING = {
    "tensor": {"layer": "column"},
    "stages": "module:cut",
    "embeddings": ("table",),
    "layers": (),
}


def resolve(name: str, hardware: Hardware = CPU, **options: Any) -> KnobSpace:
    return KNOBS.get(name)().resolve(hardware, options)


def by_name(declared: KnobSpace) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in declared.parameters}


def choices(declared: KnobSpace, name: str) -> list[Any]:
    parameter = by_name(declared)[name]
    assert isinstance(parameter, Choice)
    return list(parameter.choices)


@pytest.mark.parametrize("name", KNOBS.names())
@pytest.mark.parametrize("hardware", [CPU, OLD, NEW])
def test_every_knob(name: str, hardware: Hardware) -> None:
    knob = KNOBS.get(name)()
    assert isinstance(knob, Knob)
    assert knob.name == name
    assert knob.summary
    found = knob.resolve(hardware)
    space = Space(*found.parameters, constraints=found.constraints)
    default = space.default()
    assert default is not None
    space.check(default)
    for params in space.sample(np.random.default_rng(0), 50):
        space.check(params)
    for dropped in found.dropped:
        assert dropped.reason
        parameter = space.parameters.get(dropped.parameter)
        assert parameter is None or not parameter.legal(dropped.value)
    with pytest.raises(SpaceError, match=f"knob '{name}' has no option 'chioces'"):
        knob.resolve(hardware, {"chioces": []})


def test_all_knobs_make_one_space() -> None:
    declared = [KNOBS.get(name)().resolve(NEW) for name in KNOBS.names()]
    space = Space(
        *(p for d in declared for p in d.parameters),
        constraints=[text for d in declared for text in d.constraints],
    )
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
        "optimizer_implementation",
        "loader_workers",
        "prefetch",
        "cudnn_autotune",
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
        "precision 'tf32': needs a CUDA GPU of capability 8.0 or later; this machine has no CUDA GPU",
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
    with pytest.raises(SpaceError, match="unit of knob 'batch' is one of"):
        resolve("batch", unit="bytes")


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


def test_architecture() -> None:
    declared = resolve(
        "architecture",
        width=[96, 192],
        num_layers={"low": 2, "high": 4, "default": 2},
        dropout=False,
    )
    assert set(by_name(declared)) == {"num_layers", "width", "num_heads", "label_smoothing"}
    assert by_name(declared)["num_layers"] == Int("num_layers", 2, 4, default=2)
    assert declared.constraints == ["width % num_heads == 0"]


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
    assert "cudnn_autotune" not in by_name(on_cpu)
    assert "reduce-overhead" in choices(on_gpu, "compile")
    assert "memory_format" not in by_name(on_gpu)
    assert "memory_format" in by_name(resolve("runtime", NEW, memory_format=True))
    assert {
        str(d.value) for d in resolve("runtime", OLD).dropped if d.parameter == "matmul_precision"
    } == {
        "high",
        "medium",
    }
    assert (
        next(
            d.value
            for d in on_cpu.dropped
            if d.parameter == "compile" and "CUDA graphs" in d.reason
        ),
        next(d.value for d in on_cpu.dropped if d.parameter == "cudnn_autotune"),
    ) == ("reduce-overhead", True)


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
    with pytest.raises(SpaceError, match="knob 'runtime' can tune"):
        resolve("runtime", tune=["matmul"])


def test_no_compiler_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    declared = resolve("runtime")
    assert "compile" not in by_name(declared)
    assert any("needs a C++ compiler" in dropped.reason for dropped in declared.dropped)


def test_parallelism_without_declarations() -> None:
    declared = resolve("parallelism", slots=4)
    assert choices(declared, "parallelism") == ["single", "ddp"]
    assert choices(declared, "ranks") == [2, 4]
    assert by_name(declared)["ranks"].when == {"parallelism": ("ddp",)}
    alone = resolve("parallelism", slots=1)
    assert choices(alone, "parallelism") == ["single"]
    assert "ranks" not in by_name(alone)
    assert [str(d) for d in alone.dropped] == [
        "parallelism 'ddp': needs at least 2 ranks; there are 1 slots"
    ]


def test_parallelism_says_why_not() -> None:
    declared = resolve("parallelism", strategies=STRATEGIES, slots=2)
    assert choices(declared, "parallelism") == ["single", "ddp"]
    reasons = {str(dropped.value): dropped.reason for dropped in declared.dropped}
    assert reasons == {
        "tensor": "needs a workload that declares tensor",
        "pipeline": "needs a workload that declares stages",
        "data_pipeline": "needs a workload that declares stages",
        "embedding_server": "needs a workload that declares embeddings",
        "nccl_only": "runs on cuda, this machine trains on cpu",
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
    no_nccl = Hardware(8, 2**34, NEW.gpus, NEW.precisions, ("gloo",))
    reason = {
        str(d.value): d.reason
        for d in resolve("parallelism", no_nccl, strategies=STRATEGIES).dropped
    }["nccl_only"]
    assert reason == "needs torch built with NCCL and a CUDA GPU; here: gloo"


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
        assert (ranks is None) == (name == "single")
        assert ("microbatches" in params) == (name in ("pipeline", "data_pipeline"))
        assert ("schedule" in params) == (name == "pipeline")
        if name == "tensor":
            assert params["num_heads"] % ranks == 0
        if name == "pipeline":
            assert params["num_layers"] >= ranks
            assert params["batch_size"] % params["microbatches"] == 0
        if name == "data_pipeline":
            assert ranks >= 4
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


def test_declarations_may_be_data_classes() -> None:
    @dataclass(frozen=True)
    class Declaration:
        summary: str = "both ends"
        min_ranks: int = 2
        plan: tuple[str, ...] = ("layers",)

    @dataclass(frozen=True)
    class Plan:
        layers: tuple[str, ...] = ("a", "b")
        stages: str | None = None

    declared = resolve(
        "parallelism", strategies={"single": {"min_ranks": 1}, "ends": Declaration()}, plan=Plan()
    )
    assert choices(declared, "parallelism") == ["single", "ends"]


def test_choosing_among_strategies() -> None:
    declared = resolve(
        "parallelism", strategies=STRATEGIES, parallelism=["ddp", "single"], ranks={"default": 2}
    )
    assert choices(declared, "parallelism") == ["single", "ddp"]
    assert declared.dropped == []
    with pytest.raises(SpaceError, match="parallelism is one of"):
        resolve("parallelism", parallelism=["dpp"])
    assert resolve("parallelism", parallelism=False).parameters == []


@pytest.mark.parametrize("declaration", [3, {"min_rank": 2}])
def test_malformed_declarations_are_refused(declaration: Any) -> None:
    with pytest.raises(SpaceError, match="strategy 'x'"):
        resolve("parallelism", strategies={"x": declaration})


def test_strategies_must_agree_on_a_parameter_that_they_share() -> None:
    strategies = {
        "a": {"parameters": [Choice("cut", [1, 2]).to_dict()]},
        "b": {"parameters": [Choice("cut", [1, 3]).to_dict()]},
    }
    with pytest.raises(SpaceError, match="declare 'cut' differently"):
        resolve("parallelism", strategies=strategies)
