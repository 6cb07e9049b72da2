"""Training within a deadline on several simulated devices."""

from __future__ import annotations

import math

from benchmarks.suggesters.problems._deadline import (
    COSTS,
    GPU_16,
    GPU_80,
    QUALITY,
    deadline,
    number,
)
from benchmarks.suggesters.problems._simulator import (
    Learning,
    Noise,
    Run,
    Simulated,
    batch_efficiency,
    check_memory,
    rate_efficiency,
    step_seconds,
)
from benchmarks.suggesters.problems.base import Params, Problem
from search_spaces import Choice, Float, Int, Space


def language_model_space() -> Space:
    return Space(
        Choice("parallelism", ["ddp", "fsdp", "tensor", "pipeline"], affects=COSTS),
        Choice(
            "microbatches",
            [1, 2, 4, 8, 16, 32],
            ordered=True,
            when={"parallelism": "pipeline"},
            affects=COSTS,
        ),
        Choice("sequence_parallel", [False, True], when={"parallelism": "tensor"}, affects=COSTS),
        Int("batch_tokens", 4096, 1_048_576, log=True),
        Choice("checkpointing", ["none", "selective", "full"], ordered=True, affects=COSTS),
        Choice("precision", ["tf32", "bf16"]),
        Int("layers", 8, 48),
        Choice("width", [512, 768, 1024, 1536, 2048, 3072], ordered=True),
        Float("learning_rate", 1e-5, 1e-1, log=True, affects=QUALITY),
        Float("beta2", 0.9, 0.999, affects=QUALITY),
    )


def language_model(params: Params) -> Simulated:
    """A decoder on eight devices with 16 GB; the batch is global."""
    how = str(params["parallelism"])
    width = number(params, "width")
    layers = int(params["layers"])
    degrees = {"ddp": (8, 1, 1), "fsdp": (8, 1, 1), "tensor": (1, 8, 1), "pipeline": (1, 1, 8)}[how]
    weights = 12 * layers * width**2 + 32_000 * width
    batch = number(params, "batch_tokens")
    kept, replay = {"none": (1.0, 0.0), "selective": (0.55, 0.15), "full": (0.12, 1.0)}[
        str(params["checkpointing"])
    ]
    run = Run(
        weights,
        layers,
        int(width),
        batch / degrees[0],
        32_000,
        1,
        str(params["precision"]),
        *degrees,
        microbatches=int(params.get("microbatches", 1)),
        sharded=how == "fsdp",
        kept=kept,
        replay=replay,
        activation_factor=24 if params.get("sequence_parallel", True) else 34,
        slowdown=1.04 if params.get("sequence_parallel") else 1.0,
        overhead=0.005,
    )
    memory = check_memory(run, GPU_16)
    best = 1.5e-3 * math.sqrt(batch / 262_144) * (1024 / width) ** 0.8
    beta = math.log10(1 - number(params, "beta2"))
    efficiency = batch_efficiency(batch, 500_000) * rate_efficiency(
        number(params, "learning_rate"), best
    )
    efficiency *= math.exp(-0.15 * (beta + 1.5) ** 2)
    penalty = 1.15 * (weights / 3e8) ** -0.22 + 0.1 * (math.log(width / layers / 50)) ** 2 * 0.2
    penalty += 0.004 if params["precision"] == "bf16" else 0.0
    return Simulated(
        step_seconds(run, GPU_16), memory, Learning(1.8, 7.0, efficiency, penalty, 350.0, 0.5)
    )


def mesh_space() -> Space:
    degrees = [1, 2, 4, 8, 16]
    return Space(
        Choice("data", degrees, ordered=True, affects=COSTS),
        Choice("tensor", degrees, ordered=True, affects=COSTS),
        Choice("stages", degrees, ordered=True, affects=COSTS),
        Choice("sharded", [False, True], affects=COSTS),
        Int("microbatches", 1, 64, log=True, affects=COSTS),
        Choice("checkpointing", [False, True], affects=COSTS),
        Int("sequences", 16, 2048, log=True),
        Float("learning_rate", 1e-6, 1e-2, log=True, affects=QUALITY),
        Float("weight_decay", 1e-3, 1.0, log=True, affects=QUALITY),
        constraints=["data * tensor * stages <= 16", "data * microbatches <= sequences"],
    )


def mesh(params: Params) -> Simulated:
    """Seven billion weights on sixteen devices: degrees of three axes, whose product is bounded."""
    data, tensor, stages = (int(params[name]) for name in ("data", "tensor", "stages"))
    batch = number(params, "sequences") * 2048
    kept, replay = (0.1, 1.0) if params["checkpointing"] else (1.0, 0.0)
    run = Run(
        7e9,
        32,
        4096,
        batch / data,
        32_000,
        1,
        "bf16",
        data,
        tensor,
        stages,
        int(params["microbatches"]),
        sharded=bool(params["sharded"]),
        kept=kept,
        replay=replay,
        state_bytes=14,
    )
    memory = check_memory(run, GPU_80)
    decay = math.log10(number(params, "weight_decay"))
    best = 2.2e-4 * (batch / 1e6) ** 0.4
    efficiency = batch_efficiency(batch, 4_000_000) * rate_efficiency(
        number(params, "learning_rate"), best
    )
    return Simulated(
        step_seconds(run, GPU_80),
        memory,
        Learning(1.7, 3.0, efficiency, 0.03 * (decay + 1.1) ** 2, 60.0, 0.45),
    )


def vision_transformer_space() -> Space:
    return Space(
        Choice("patch", [4, 8, 14, 16, 32], ordered=True),
        Choice("strategy", ["replicate", "shard", "shard_offload"], affects=COSTS),
        Int("batch_size", 16, 8192, log=True),
        Choice("checkpointing", [False, True], affects=COSTS),
        Choice("attention", ["math", "blocked"], affects=COSTS),
        Choice("precision", ["tf32", "bf16"]),
        Float("learning_rate", 1e-5, 1e-1, log=True, affects=QUALITY),
        Float("weight_decay", 1e-3, 1.0, log=True, affects=QUALITY),
        Float("mixup", 0.0, 1.0, affects=QUALITY),
        Int("warmup_updates", 10, 5000, log=True, affects=QUALITY),
    )


def vision_transformer(params: Params) -> Simulated:
    """300 million weights on four devices with 16 GB; a smaller patch is better and slower."""
    tokens_each = (224 / number(params, "patch")) ** 2
    batch = number(params, "batch_size")
    strategy = str(params["strategy"])
    blocked = params["attention"] == "blocked"
    kept, replay = (0.1, 1.0) if params["checkpointing"] else (1.0, 0.0)
    quadratic = tokens_each / 600
    run = Run(
        3e8,
        24,
        1024,
        batch * tokens_each / 4,
        0,
        1,
        str(params["precision"]),
        data=4,
        sharded=strategy != "replicate",
        kept=kept,
        replay=replay,
        state_bytes=4 if strategy == "shard_offload" else 16,
        slowdown=(1 + 0.3 * quadratic) * (0.9 if blocked else 1.0),
        overhead=0.35 if strategy == "shard_offload" else 0.006,
        activation_factor=20 if blocked else 20 * (1 + quadratic),
    )
    memory = check_memory(run, GPU_16)
    decay = math.log10(number(params, "weight_decay"))
    warmup = math.log10(number(params, "warmup_updates"))
    best = 8e-4 * math.sqrt(batch / 1024)
    efficiency = batch_efficiency(batch, 3000) * rate_efficiency(
        number(params, "learning_rate"), best, edge=0.3 + 0.2 * (warmup - 1)
    )
    efficiency *= math.exp(-0.1 * (warmup - 2.7) ** 2)
    penalty = (
        2.2 * math.log2(number(params, "patch") / 4) ** 1.5
        + 1.5 * (decay + 1) ** 2
        + 9 * (number(params, "mixup") - 0.35) ** 2
    )
    return Simulated(
        step_seconds(run, GPU_16), memory, Learning(-82.0, 62.0, efficiency, penalty, 900.0, 0.8)
    )


def problems() -> list[Problem]:
    loss = "minimize loss within"
    noise = Noise(0.3)
    space = vision_transformer_space()
    accuracy = "maximize accuracy within 7200s"
    return [
        deadline(
            "language_model_eight_gpus", language_model_space(), f"{loss} 86400s", language_model
        ),
        deadline("mesh_sixteen_gpus", mesh_space(), f"{loss} 36000s", mesh),
        deadline("vision_transformer", space, accuracy, vision_transformer, noise=noise, sign=-1.0),
    ]
