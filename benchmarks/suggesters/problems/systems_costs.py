"""Seconds until a loss is reached, and throughput alone, on the same simulated devices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from automl.core.trial import ReportPoint
from benchmarks.suggesters.problems._deadline import COSTS, GPU_80, SPEED, Resolve
from benchmarks.suggesters.problems._simulator import (
    Noise,
    Run,
    check_memory,
    curve,
    step_seconds,
)
from benchmarks.suggesters.problems.base import (
    Metrics,
    Observation,
    Params,
    Problem,
    problem,
)
from benchmarks.suggesters.problems.systems import (
    processor,
    processor_space,
    translation,
    translation_space,
)
from search_spaces import Choice, Int, Space
from search_spaces.errors import TrialFailure


def to_target(name: str, space: Space, resolve: Resolve, target: float, limit: float) -> Problem:
    """Seconds of training until the loss is at most `target`; a trial times out at `limit`.

    The goal is `steps_to_target` (quality) times `step_seconds` (speed).
    """
    noise = Noise(loss=0.01)

    def clean(params: Params) -> Metrics:
        run = resolve(params)
        steps = run.learning.steps_to(target, limit / run.seconds)
        if steps is None or steps * run.seconds > limit:
            raise TrialFailure("timeout")
        metrics = {
            "steps_to_target": steps,
            "step_seconds": run.seconds,
            "peak_memory_bytes": run.memory,
        }
        return {"seconds_to_target": steps * run.seconds, **metrics}

    def observe(params: Params, rng: np.random.Generator) -> Observation:
        run = resolve(params)
        steps = run.learning.steps_to(target, limit / run.seconds)
        seconds = limit if steps is None else min(limit, steps * run.seconds)
        seen = curve(run, seconds, rng, noise)
        if steps is None or steps * run.seconds > limit:
            return Observation(seen.metrics, seen.reports, "timeout", seen.peak_memory_bytes)
        noisy = steps * float(np.exp(0.03 * rng.standard_normal()))
        pace = seen.metrics.get("step_seconds", run.seconds)
        found: Mapping[str, float] = {
            **seen.metrics,
            "steps_to_target": noisy,
            "seconds_to_target": noisy * pace,
        }
        last = ReportPoint(max(1, round(noisy)), {"loss": target}, noisy * pace)
        return Observation(
            found, (*seen.reports[:-1], last), peak_memory_bytes=seen.peak_memory_bytes
        )

    return problem(name, "systems", space, "minimize seconds_to_target", clean, observe=observe)


def throughput_space() -> Space:
    return Space(
        Choice("parallelism", ["ddp", "fsdp", "tensor", "pipeline"], affects=COSTS),
        Choice(
            "degree",
            [2, 4, 8],
            ordered=True,
            when={"parallelism": ["tensor", "pipeline"]},
            affects=COSTS,
        ),
        Int("microbatches", 1, 64, log=True, when={"parallelism": "pipeline"}, affects=COSTS),
        Choice("precision", ["fp32", "tf32", "bf16"], affects=COSTS),
        Choice("checkpointing", ["none", "selective", "full"], ordered=True, affects=COSTS),
        Choice("attention_layout", ["interleaved", "separate", "packed"], affects=SPEED),
        Choice("compile", [False, True], affects=COSTS),
        Int("sequences_per_rank", 1, 512, log=True, affects=COSTS),
        Int("bucket_megabytes", 1, 512, log=True, affects=SPEED),
    )


def throughput(params: Params) -> Metrics:
    """Tokens per second of 2.7 billion weights on eight devices."""
    how = str(params["parallelism"])
    degree = int(params.get("degree", 1))
    tensor = degree if how == "tensor" else 1
    stages = degree if how == "pipeline" else 1
    data = 8 // (tensor * stages)
    kept, replay = {"none": (1.0, 0.0), "selective": (0.5, 0.15), "full": (0.1, 1.0)}[
        str(params["checkpointing"])
    ]
    layout = {"interleaved": 0.95, "separate": 1.06, "packed": 1.0}[str(params["attention_layout"])]
    tokens = float(params["sequences_per_rank"]) * 1024
    compiled = bool(params["compile"])
    run = Run(
        2.7e9,
        32,
        2560,
        tokens,
        50_000,
        1,
        str(params["precision"]),
        data,
        tensor,
        stages,
        int(params.get("microbatches", 1)),
        sharded=how == "fsdp",
        kept=kept,
        replay=replay,
        slowdown=layout * (0.82 if compiled else 1.0),
        overhead=0.004 + 0.02 * abs(np.log2(float(params["bucket_megabytes"])) - 5.5) / 5,
        activation_factor=26 if compiled else 34,
    )
    memory = check_memory(run, GPU_80)
    seconds = step_seconds(run, GPU_80)
    return {
        "tokens_per_second": tokens * data / seconds,
        "step_seconds": seconds,
        "peak_memory_bytes": memory,
    }


def problems() -> list[Problem]:
    goal = "maximize tokens_per_second"
    return [
        to_target(
            "translation_seconds_to_loss",
            translation_space(),
            translation,
            target=7.8,
            limit=1800.0,
        ),
        to_target(
            "processor_seconds_to_loss", processor_space(), processor, target=6.0, limit=3600.0
        ),
        problem("throughput", "systems", throughput_space(), goal, throughput, noise=200.0),
    ]
