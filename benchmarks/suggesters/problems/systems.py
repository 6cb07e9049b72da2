"""Training within a deadline on one simulated device or server."""

from __future__ import annotations

import math

from benchmarks.suggesters.problems._deadline import (
    COSTS,
    GPU_12,
    QUALITY,
    SPEED,
    deadline,
    number,
    overflow,
)
from benchmarks.suggesters.problems._simulator import (
    Device,
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
    accumulation = int(params["accumulation"])
    batch = number(params, "batch_tokens")
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
    memory = check_memory(run, GPU_12)
    step = batch * accumulation
    rate = number(params, "learning_rate")
    warmup = math.log10(number(params, "warmup_updates"))
    best = 1.2e-3 * math.sqrt(step / 25_000) * (1 + 0.15 * (warmup - 2.5))
    overflow(params, rate, 3e-3)
    efficiency = batch_efficiency(step, 60_000) * rate_efficiency(
        rate, best, edge=0.45 + 0.2 * (warmup - 2)
    )
    efficiency *= math.exp(-0.08 * (warmup - 2.6) ** 2)
    penalty = (
        2.5 * (number(params, "dropout") - 0.13) ** 2
        + 1.5 * (number(params, "label_smoothing") - 0.1) ** 2
    )
    penalty += {"fp32": 0.0, "tf32": 0.0, "bf16": 0.006, "fp16": 0.004}[str(params["precision"])]
    return Simulated(
        step_seconds(run, GPU_12), memory, Learning(2.1, 6.5, efficiency, penalty, 900.0, 0.55)
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
    """Accuracy in percent of a convolutional classifier on 12 GB, with batches from the CPU."""
    batch = number(params, "batch_size")
    pixels = (number(params, "resolution") / 224) ** 2
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
    feeding = batch * (0.35 + 0.65 * pixels) / (170 * number(params, "loader_workers") ** 0.8)
    seconds = max(step_seconds(run, GPU_12), feeding) + 0.1 * feeding
    rate = number(params, "learning_rate")
    decay = math.log10(number(params, "weight_decay"))
    best = (
        2e-3 * math.sqrt(batch / 256)
        if adam
        else 1.0 * (1 - number(params, "momentum")) / 0.1 * batch / 256 * 0.5
    )
    overflow(params, rate / best, 2.0)
    efficiency = (
        batch_efficiency(batch, 3000)
        * rate_efficiency(rate, best)
        * (0.85 if adam else 1.0)
        * 0.55 ** (1 - pixels)
    )
    augmentation = number(params, "augmentation")
    penalty = (
        0.8 * (decay - (-1.8 if adam else -4.0)) ** 2
        + 14 * (1 - pixels) ** 2
        + 6 * (augmentation - 0.45) ** 2
    )
    return Simulated(
        seconds,
        memory,
        Learning(-78.0, 58.0, efficiency * (1.1 - 0.3 * augmentation), penalty, 500.0, 0.9),
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
    method = str(params["method"])
    layers = 24
    trained = {
        "full": 1.0,
        "adapters": 0.0004 * number(params, "rank"),
        "last_layers": number(params, "num_layers_trained") / layers,
    }[method]
    backward = {"full": 1.0, "adapters": 0.72, "last_layers": 0.36 + 0.64 * trained}[method]
    stored = {"full": 1.0, "adapters": 0.9, "last_layers": 0.1 + 0.9 * trained}[method]
    batch = number(params, "batch_size")
    length = number(params, "sequence_length")
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
    memory = check_memory(run, GPU_12)
    step = batch * int(params["accumulation"])
    best = {"full": 2.5e-5, "adapters": 4e-4, "last_layers": 8e-5}[method] * math.sqrt(step / 32)
    efficiency = batch_efficiency(step, 120) * rate_efficiency(
        number(params, "learning_rate"), best, edge=0.6
    )
    capacity = {
        "full": 0.0,
        "adapters": 0.03 * (math.log2(number(params, "rank", 16)) - 4.2) ** 2 / 4 + 0.008,
        "last_layers": 0.12 * (1 - trained) ** 2 + 0.01,
    }[method]
    penalty = capacity + 0.09 * 2 ** (-length / 90) + 0.6 * (number(params, "dropout") - 0.12) ** 2
    rise = 0.05 * max(trained, 0.1) * (1 - 1.2 * number(params, "dropout"))
    return Simulated(
        step_seconds(run, GPU_12),
        memory,
        Learning(0.32, 0.5, efficiency, penalty, 60.0, 0.9, rise, 700.0),
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
    """A recurrent language model on 1.3 GB; the unrolled steps run one after another."""
    hidden = number(params, "hidden")
    layers = int(params["layers"])
    unroll = number(params, "unroll")
    gates = 4 if params["cell"] == "lstm" else 3
    batch = number(params, "batch_size")
    weights = 2 * gates * hidden**2 * layers + 10_000 * hidden
    device = Device(1.3e9, {"fp32": 9e12, "fp16": 28e12}, half_rate_tokens=2048)
    run = Run(
        weights,
        layers,
        int(hidden),
        batch * unroll,
        10_000,
        1,
        str(params["precision"]),
        activation_factor=4.0 * gates,
    )
    memory = check_memory(run, device)
    launch = 12e-6 if params["fused"] else 90e-6
    serial = unroll * layers * launch * (1.0 if params["cell"] == "lstm" else 0.9)
    rate = number(params, "learning_rate")
    clip = math.log10(number(params, "clip"))
    best = 4e-3 * math.sqrt(batch / 64) * (512 / hidden) ** 0.6
    overflow(params, rate, 2e-2)
    edge = 0.75 - 0.35 * (clip + 0.3) - 0.15 * math.log2(unroll / 64) * 0.4
    efficiency = (
        batch_efficiency(batch * unroll, 16_000)
        * rate_efficiency(rate, best, edge=edge)
        * math.exp(-0.2 * (clip + 0.5) ** 2)
    )
    wanted = 0.15 + 0.14 * math.log2(hidden / 256)
    penalty = (
        0.7 * (hidden * math.sqrt(layers) / 400) ** -0.35
        + 1.1 * (number(params, "dropout") - min(max(wanted, 0), 0.65)) ** 2
    )
    penalty += 0.25 * 2 ** (-unroll / 24) + (0.03 if params["cell"] == "gru" else 0.0)
    return Simulated(
        step_seconds(run, device) + serial,
        memory,
        Learning(3.6, 3.5, efficiency, penalty, 700.0, 0.7),
    )


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
    ranks = int(params["ranks"])
    threads = float(params["threads"])
    compiled = bool(params["compile"])
    width = number(params, "width")
    layers = int(params["layers"])
    batch = number(params, "batch_size")
    low = params["precision"] == "bf16"
    share = 3e9 / ranks * (0.92 if params["allocator"] == "arena" else 0.78)
    speed = 2.5e10 * threads / (1 + 0.035 * threads)
    device = Device(share, {"fp32": speed, "bf16": speed * 1.7}, 4e9, 1e-6, 96)
    tokens = batch * 64
    weights = 12 * layers * width**2 + 8_000 * width
    allocation = 1.0 if params["allocator"] == "arena" else 1.06
    slowdown = (0.75 if compiled else 1.0) * allocation * (1 + 0.02 * ranks)
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
    efficiency = batch_efficiency(step, 15_000) * rate_efficiency(
        number(params, "learning_rate"), best
    )
    penalty = 0.9 * (weights / 2e6) ** -0.2 + (0.01 if low else 0.0) + 0.02 * (layers - 4) ** 2 / 4
    return Simulated(
        step_seconds(run, device), memory, Learning(2.4, 5.0, efficiency, penalty, 500.0, 0.55)
    )


def problems() -> list[Problem]:
    loss = "minimize loss within"
    accuracy = "maximize accuracy within 1800s"
    tags = "apart conditional"
    little = Noise(0.005)
    some = Noise(0.02)
    percent = Noise(0.3)
    return [
        deadline(
            "translation_one_gpu", translation_space(), f"{loss} 600s", translation, noise=some
        ),
        deadline("image_classifier", image_space(), accuracy, image, noise=percent, sign=-1.0),
        deadline("finetune", finetune_space(), f"{loss} 300s", finetune, noise=little, tags=tags),
        deadline("recurrent", recurrent_space(), f"{loss} 3600s", recurrent, noise=some),
        deadline("processor", processor_space(), f"{loss} 3600s", processor, noise=some),
    ]
