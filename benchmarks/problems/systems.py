"""Training within a deadline on simulated devices: loss, seconds per step and peak memory are reported apart.

Every parameter says what it `affects`. The goal composes the metrics: the loss at the deadline follows from the loss by
steps and from how many steps fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from search_spaces import Choice, Float, Int, Space
from search_spaces.errors import TrialFailure

from ._simulator import (
    Device,
    Learning,
    Noise,
    Run,
    Simulated,
    batch_efficiency,
    check_memory,
    curve,
    rate_efficiency,
    report_steps,
    step_seconds,
)
from .base import Metrics, Observation, Params, Problem, problem

QUALITY, SPEED, MEMORY = {"quality"}, {"speed"}, {"memory"}
COSTS = {"speed", "memory"}
GPU_12 = Device(12e9, {"fp32": 18e12, "tf32": 35e12, "bf16": 70e12, "fp16": 75e12}, half_rate_tokens=8000)
GPU_16 = Device(16e9, {"tf32": 60e12, "bf16": 120e12}, bandwidth=50e9, half_rate_tokens=4000)
GPU_80 = Device(80e9, {"fp32": 19e12, "tf32": 120e12, "bf16": 250e12, "fp16": 250e12}, bandwidth=200e9)
DEFAULT_NOISE = Noise()
Resolve = Callable[[Params], Simulated]


def deadline(
    name: str,
    space: Space,
    goal: str,
    resolve: Resolve,
    *,
    noise: Noise = DEFAULT_NOISE,
    sign: float = 1.0,
    tags: str = "apart",
) -> Problem:
    """A problem whose goal is a metric within so many seconds of training."""
    metric, within = goal.split()[1], float(goal.split()[-1].rstrip("s"))

    def clean(params: Params) -> Metrics:
        run = resolve(params)
        steps = report_steps(within, run.seconds)
        if not steps:
            raise TrialFailure("timeout")
        loss = sign * min(run.learning.loss(step) for step in steps)  # a goal takes the best report
        return {metric: loss, "step_seconds": run.seconds, "peak_memory_bytes": run.memory}

    def observe(params: Params, rng: np.random.Generator) -> Observation:
        return curve(resolve(params), within, rng, noise, metric=metric, sign=sign)

    return problem(name, "systems", space, goal, clean, tags=tags, observe=observe)


def _number(params: Params, name: str, default: float = 0.0) -> float:
    return float(params.get(name, default))


def _fp16(params: Params, rate: float, edge: float) -> None:
    """Half precision overflows at learning rates that the others bear."""
    if params["precision"] == "fp16" and rate > edge:
        raise TrialFailure("non_finite")


def translation_space() -> Space:
    return Space(
        Int("batch_tokens", 256, 65536, log=True),
        Choice("accumulation", [1, 2, 4, 8, 16], ordered=True, affects=QUALITY | SPEED),
        Choice("precision", ["fp32", "tf32", "bf16", "fp16"]),
        Choice("attention_layout", ["interleaved", "separate", "packed"], affects=SPEED),
        Choice("checkpointing", [False, True], affects=COSTS),
        Choice("compile", [False, True], affects=SPEED),
        Float("learning_rate", 1e-5, 1e-1, log=True, affects=QUALITY),
        Int("warmup_updates", 10, 8000, log=True, affects=QUALITY),
        Float("dropout", 0.0, 0.5, affects=QUALITY),
        Float("label_smoothing", 0.0, 0.3, affects=QUALITY),
    )


def translation(params: Params) -> Simulated:
    """Six layers of width 512 on one device with 12 GB."""
    accumulation, batch = int(params["accumulation"]), _number(params, "batch_tokens")
    layout = {"interleaved": 1.0, "separate": 1.12, "packed": 0.86}[str(params["attention_layout"])]
    kept, replay = (0.15, 1.0) if params["checkpointing"] else (1.0, 0.0)
    run = Run(
        6e7,
        12,
        512,
        batch,
        32_000,
        accumulation,
        str(params["precision"]),
        kept=kept,
        replay=replay,
        slowdown=layout * (0.78 if params["compile"] else 1.0),
        overhead=0.004,
        activation_factor=34,
    )
    memory, step = check_memory(run, GPU_12), batch * accumulation
    rate, warmup = _number(params, "learning_rate"), math.log10(_number(params, "warmup_updates"))
    best = 1.2e-3 * math.sqrt(step / 25_000) * (1 + 0.15 * (warmup - 2.5))
    _fp16(params, rate, 3e-3)
    efficiency = batch_efficiency(step, 60_000) * rate_efficiency(rate, best, edge=0.45 + 0.2 * (warmup - 2))
    efficiency *= math.exp(-0.08 * (warmup - 2.6) ** 2)
    penalty = 2.5 * (_number(params, "dropout") - 0.13) ** 2 + 1.5 * (_number(params, "label_smoothing") - 0.1) ** 2
    penalty += {"fp32": 0.0, "tf32": 0.0, "bf16": 0.006, "fp16": 0.004}[str(params["precision"])]
    return Simulated(step_seconds(run, GPU_12), memory, Learning(2.1, 6.5, efficiency, penalty, 900.0, 0.55))


def language_model_space() -> Space:
    return Space(
        Choice("parallelism", ["ddp", "fsdp", "tensor", "pipeline"], affects=COSTS),
        Choice("microbatches", [1, 2, 4, 8, 16, 32], ordered=True, when={"parallelism": "pipeline"}, affects=COSTS),
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
    how, width, layers = str(params["parallelism"]), _number(params, "width"), int(params["layers"])
    degrees = {"ddp": (8, 1, 1), "fsdp": (8, 1, 1), "tensor": (1, 8, 1), "pipeline": (1, 1, 8)}[how]
    weights, batch = 12 * layers * width**2 + 32_000 * width, _number(params, "batch_tokens")
    kept, replay = {"none": (1.0, 0.0), "selective": (0.55, 0.15), "full": (0.12, 1.0)}[str(params["checkpointing"])]
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
    beta = math.log10(1 - _number(params, "beta2"))
    efficiency = batch_efficiency(batch, 500_000) * rate_efficiency(_number(params, "learning_rate"), best)
    efficiency *= math.exp(-0.15 * (beta + 1.5) ** 2)
    penalty = 1.15 * (weights / 3e8) ** -0.22 + 0.1 * (math.log(width / layers / 50)) ** 2 * 0.2
    penalty += 0.004 if params["precision"] == "bf16" else 0.0
    return Simulated(step_seconds(run, GPU_16), memory, Learning(1.8, 7.0, efficiency, penalty, 350.0, 0.5))


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
    batch = _number(params, "sequences") * 2048
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
    decay = math.log10(_number(params, "weight_decay"))
    best = 2.2e-4 * (batch / 1e6) ** 0.4
    efficiency = batch_efficiency(batch, 4_000_000) * rate_efficiency(_number(params, "learning_rate"), best)
    return Simulated(
        step_seconds(run, GPU_80), memory, Learning(1.7, 3.0, efficiency, 0.03 * (decay + 1.1) ** 2, 60.0, 0.45)
    )


def image_space() -> Space:
    return Space(
        Int("batch_size", 8, 4096, log=True),
        Choice("resolution", [96, 128, 160, 192, 224], ordered=True),
        Choice("memory_format", ["contiguous", "channels_last"], affects=COSTS),
        Choice("precision", ["fp32", "tf32", "bf16", "fp16"]),
        Int("loader_workers", 1, 16, affects=SPEED),
        Choice("optimizer", ["sgd", "adamw"]),
        Float("learning_rate", 1e-4, 10.0, log=True, affects=QUALITY),
        Float("momentum", 0.5, 0.99, when={"optimizer": "sgd"}, affects=QUALITY),
        Float("weight_decay", 1e-6, 1e-1, log=True, affects=QUALITY),
        Float("augmentation", 0.0, 1.0, affects=QUALITY),
    )


def image(params: Params) -> Simulated:
    """A convolutional classifier on one device with 12 GB, fed by the processor; accuracy in percent."""
    batch, pixels = _number(params, "batch_size"), (_number(params, "resolution") / 224) ** 2
    last = params["memory_format"] == "channels_last"
    layout = (0.72 if params["precision"] in ("bf16", "fp16") else 1.05) if last else 1.0
    adam = params["optimizer"] == "adamw"
    run = Run(
        2.5e7,
        50,
        512,
        batch * pixels * 60,
        0,
        1,
        str(params["precision"]),
        state_bytes=16 if adam else 12,
        slowdown=layout * 1.6,
        overhead=0.003,
        activation_factor=24 if last else 27,
    )
    memory = check_memory(run, GPU_12)
    feeding = batch * (0.35 + 0.65 * pixels) / (170 * _number(params, "loader_workers") ** 0.8)
    seconds = max(step_seconds(run, GPU_12), feeding) + 0.1 * feeding
    rate, decay = _number(params, "learning_rate"), math.log10(_number(params, "weight_decay"))
    best = 2e-3 * math.sqrt(batch / 256) if adam else 1.0 * (1 - _number(params, "momentum")) / 0.1 * batch / 256 * 0.5
    _fp16(params, rate / best, 2.0)
    efficiency = (
        batch_efficiency(batch, 3000) * rate_efficiency(rate, best) * (0.85 if adam else 1.0) * 0.55 ** (1 - pixels)
    )
    augmentation = _number(params, "augmentation")
    penalty = 0.8 * (decay - (-1.8 if adam else -4.0)) ** 2 + 14 * (1 - pixels) ** 2 + 6 * (augmentation - 0.45) ** 2
    return Simulated(
        seconds, memory, Learning(-78.0, 58.0, efficiency * (1.1 - 0.3 * augmentation), penalty, 500.0, 0.9)
    )


def finetune_space() -> Space:
    return Space(
        Choice("method", ["full", "adapters", "last_layers"]),
        Int("rank", 1, 256, log=True, when={"method": "adapters"}),
        Int("num_layers_trained", 1, 24, when={"method": "last_layers"}),
        Choice("sequence_length", [64, 128, 256, 512], ordered=True),
        Int("batch_size", 1, 256, log=True),
        Choice("accumulation", [1, 2, 4, 8], ordered=True, affects=QUALITY | SPEED),
        Choice("checkpointing", [False, True], affects=COSTS),
        Choice("precision", ["fp32", "bf16"]),
        Float("learning_rate", 1e-7, 1e-2, log=True, affects=QUALITY),
        Float("dropout", 0.0, 0.5, affects=QUALITY),
    )


def finetune(params: Params) -> Simulated:
    """A pretrained encoder of 335 million weights on a small data set that it soon overfits."""
    method, layers = str(params["method"]), 24
    trained = {
        "full": 1.0,
        "adapters": 0.0004 * _number(params, "rank"),
        "last_layers": _number(params, "num_layers_trained") / layers,
    }[method]
    backward = {"full": 1.0, "adapters": 0.72, "last_layers": 0.36 + 0.64 * trained}[method]
    stored = {"full": 1.0, "adapters": 0.9, "last_layers": 0.1 + 0.9 * trained}[method]
    batch, length = _number(params, "batch_size"), _number(params, "sequence_length")
    kept, replay = (0.12, 1.0) if params["checkpointing"] else (1.0, 0.0)
    run = Run(
        3.35e8,
        layers,
        1024,
        batch * length,
        0,
        int(params["accumulation"]),
        str(params["precision"]),
        kept=kept * stored,
        replay=replay,
        state_bytes=4 + 12 * trained,
        slowdown=backward * (1 + length / 2048),
        activation_factor=34 * (1 + length / 1024),
        overhead=0.01,
    )
    memory, step = check_memory(run, GPU_12), batch * int(params["accumulation"])
    best = {"full": 2.5e-5, "adapters": 4e-4, "last_layers": 8e-5}[method] * math.sqrt(step / 32)
    efficiency = batch_efficiency(step, 120) * rate_efficiency(_number(params, "learning_rate"), best, edge=0.6)
    capacity = {
        "full": 0.0,
        "adapters": 0.03 * (math.log2(_number(params, "rank", 16)) - 4.2) ** 2 / 4 + 0.008,
        "last_layers": 0.12 * (1 - trained) ** 2 + 0.01,
    }[method]
    penalty = capacity + 0.09 * 2 ** (-length / 90) + 0.6 * (_number(params, "dropout") - 0.12) ** 2
    rise = 0.05 * max(trained, 0.1) * (1 - 1.2 * _number(params, "dropout"))
    return Simulated(
        step_seconds(run, GPU_12), memory, Learning(0.32, 0.5, efficiency, penalty, 60.0, 0.9, rise, 700.0)
    )


def recurrent_space() -> Space:
    return Space(
        Choice("cell", ["lstm", "gru"]),
        Int("hidden", 64, 4096, log=True),
        Int("layers", 1, 4),
        Int("unroll", 8, 512, log=True),
        Int("batch_size", 4, 1024, log=True),
        Choice("fused", [False, True], affects=SPEED),
        Choice("precision", ["fp32", "fp16"]),
        Float("learning_rate", 1e-5, 1.0, log=True, affects=QUALITY),
        Float("clip", 0.05, 20.0, log=True, affects=QUALITY),
        Float("dropout", 0.0, 0.8, affects=QUALITY),
    )


def recurrent(params: Params) -> Simulated:
    """A recurrent language model on 1.3 GB of a device; the unrolled steps run one after another."""
    hidden, layers, unroll = _number(params, "hidden"), int(params["layers"]), _number(params, "unroll")
    gates, batch = 4 if params["cell"] == "lstm" else 3, _number(params, "batch_size")
    weights = 2 * gates * hidden**2 * layers + 10_000 * hidden
    device = Device(1.3e9, {"fp32": 9e12, "fp16": 28e12}, half_rate_tokens=2048)
    run = Run(
        weights, layers, int(hidden), batch * unroll, 10_000, 1, str(params["precision"]), activation_factor=4.0 * gates
    )
    memory = check_memory(run, device)
    serial = unroll * layers * (12e-6 if params["fused"] else 90e-6) * (1.0 if params["cell"] == "lstm" else 0.9)
    rate, clip = _number(params, "learning_rate"), math.log10(_number(params, "clip"))
    best = 4e-3 * math.sqrt(batch / 64) * (512 / hidden) ** 0.6
    _fp16(params, rate, 2e-2)
    edge = 0.75 - 0.35 * (clip + 0.3) - 0.15 * math.log2(unroll / 64) * 0.4
    efficiency = (
        batch_efficiency(batch * unroll, 16_000)
        * rate_efficiency(rate, best, edge=edge)
        * math.exp(-0.2 * (clip + 0.5) ** 2)
    )
    wanted = 0.15 + 0.14 * math.log2(hidden / 256)
    penalty = (
        0.7 * (hidden * math.sqrt(layers) / 400) ** -0.35
        + 1.1 * (_number(params, "dropout") - min(max(wanted, 0), 0.65)) ** 2
    )
    penalty += 0.25 * 2 ** (-unroll / 24) + (0.03 if params["cell"] == "gru" else 0.0)
    return Simulated(step_seconds(run, device) + serial, memory, Learning(3.6, 3.5, efficiency, penalty, 700.0, 0.7))


def processor_space() -> Space:
    return Space(
        Choice("ranks", [1, 2, 4, 8, 16], ordered=True),
        Choice("threads", [1, 2, 4, 8, 16, 32], ordered=True, affects=SPEED),
        Choice("precision", ["fp32", "bf16"]),
        Choice("allocator", ["system", "arena"], affects=COSTS),
        Choice("compile", [False, True], affects=COSTS),
        Int("batch_size", 1, 512, log=True),
        Int("width", 64, 1024, log=True),
        Int("layers", 1, 8),
        Float("learning_rate", 1e-5, 1e-1, log=True, affects=QUALITY),
        constraints=["ranks * threads <= 32"],
    )


def processor(params: Params) -> Simulated:
    """A small transformer on a 32-core server with 3 GB, several ranks with several threads."""
    ranks, threads, compiled = int(params["ranks"]), float(params["threads"]), bool(params["compile"])
    width, layers, batch = _number(params, "width"), int(params["layers"]), _number(params, "batch_size")
    low = params["precision"] == "bf16"
    share = 3e9 / ranks * (0.92 if params["allocator"] == "arena" else 0.78)
    speed = 2.5e10 * threads / (1 + 0.035 * threads)
    device = Device(share, {"fp32": speed, "bf16": speed * 1.7}, 4e9, 1e-6, 96)
    tokens = batch * 64
    weights = 12 * layers * width**2 + 8_000 * width
    slowdown = (0.75 if compiled else 1.0) * (1.0 if params["allocator"] == "arena" else 1.06) * (1 + 0.02 * ranks)
    run = Run(
        weights,
        layers,
        int(width),
        tokens,
        8_000,
        1,
        str(params["precision"]),
        data=ranks,
        slowdown=slowdown,
        overhead=0.002,
        activation_factor=30 if compiled else 40,
    )
    memory = check_memory(run, device)
    step = tokens * ranks
    best = 1.5e-3 * math.sqrt(step / 4096) * (256 / width) ** 0.5
    efficiency = batch_efficiency(step, 15_000) * rate_efficiency(_number(params, "learning_rate"), best)
    penalty = 0.9 * (weights / 2e6) ** -0.2 + (0.01 if low else 0.0) + 0.02 * (layers - 4) ** 2 / 4
    return Simulated(step_seconds(run, device), memory, Learning(2.4, 5.0, efficiency, penalty, 500.0, 0.55))


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
    """Three hundred million weights on four devices with 16 GB; a smaller patch is better and far dearer."""
    tokens_each = (224 / _number(params, "patch")) ** 2
    batch, strategy = _number(params, "batch_size"), str(params["strategy"])
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
    decay, warmup = math.log10(_number(params, "weight_decay")), math.log10(_number(params, "warmup_updates"))
    best = 8e-4 * math.sqrt(batch / 1024)
    efficiency = batch_efficiency(batch, 3000) * rate_efficiency(
        _number(params, "learning_rate"), best, edge=0.3 + 0.2 * (warmup - 1)
    )
    efficiency *= math.exp(-0.1 * (warmup - 2.7) ** 2)
    penalty = (
        2.2 * math.log2(_number(params, "patch") / 4) ** 1.5
        + 1.5 * (decay + 1) ** 2
        + 9 * (_number(params, "mixup") - 0.35) ** 2
    )
    return Simulated(step_seconds(run, GPU_16), memory, Learning(-82.0, 62.0, efficiency, penalty, 900.0, 0.8))


def problems() -> list[Problem]:
    loss = "minimize loss within"
    accuracy = "maximize accuracy within"
    percent = Noise(loss=0.3)
    return [
        deadline("translation_one_gpu", translation_space(), f"{loss} 600s", translation, noise=Noise(0.02)),
        deadline("language_model_eight_gpus", language_model_space(), f"{loss} 86400s", language_model),
        deadline("mesh_sixteen_gpus", mesh_space(), f"{loss} 36000s", mesh),
        deadline("image_classifier", image_space(), f"{accuracy} 1800s", image, noise=percent, sign=-1.0),
        deadline("finetune", finetune_space(), f"{loss} 300s", finetune, noise=Noise(0.005), tags="apart conditional"),
        deadline("recurrent", recurrent_space(), f"{loss} 3600s", recurrent, noise=Noise(0.02)),
        deadline("processor", processor_space(), f"{loss} 3600s", processor, noise=Noise(0.02)),
        deadline(
            "vision_transformer",
            vision_transformer_space(),
            f"{accuracy} 7200s",
            vision_transformer,
            noise=percent,
            sign=-1.0,
        ),
    ]
