"""Estimated against measured peak memory of 20 configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.common.bounds import Claim, at_least
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target, label
from benchmarks.training.gpu_stages._trials import RandomPairs, base, train_once
from benchmarks.training.memory import MIN_CORRELATION, MIN_WITHIN, rank_correlation

NEAR = 0.2
BF16 = {"precision": "bf16"}
# (rows, length, entries of the vocabulary) of a batch
SHORT = (128, 64, 32_000)
LONG = (16, 1024, 2_000)
CONFIGURATIONS: tuple[tuple[tuple[int, int, int], dict[str, Any]], ...] = (
    (SHORT, BF16),
    (SHORT, {"precision": "fp32"}),
    (SHORT, {"precision": "tf32"}),
    (SHORT, {"precision": "fp16"}),
    (SHORT, {**BF16, "activation_checkpointing": "layers"}),
    (SHORT, {**BF16, "activation_checkpointing": "selective"}),
    (SHORT, {**BF16, "attention_kernel": "math"}),
    (SHORT, {**BF16, "optimizer": "sgd"}),
    (SHORT, {**BF16, "accumulation": 4}),
    (SHORT, {**BF16, "width": 1024}),
    (SHORT, {**BF16, "dropout": 0.0}),
    (LONG, BF16),
    (LONG, {"precision": "fp32"}),
    (LONG, {**BF16, "activation_checkpointing": "layers"}),
    (LONG, {**BF16, "attention_kernel": "math"}),
    (LONG, {**BF16, "num_layers": 3}),
    ((16, 2048, 2_000), BF16),
    ((16, 1024, 32_000), {"precision": "fp32"}),
    ((512, 32, 8_000), BF16),
    ((32, 128, 8_000), {**BF16, "width": 1024, "num_layers": 3}),
)


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    found = []
    for index, (shape, options) in enumerate(CONFIGURATIONS):
        settings = {"shape": list(shape), "options": options}
        name = f"{'x'.join(map(str, shape))} {label(options)}"
        if target.cuda or options.get("precision") != "tf32":
            found.append(Case(name, settings, "memory", 90.0, quick=index in (0, 6, 11)))
    return found


def measure(target: Target, case: Case) -> Row:
    """Two updates, then the estimate of the same configuration."""
    from workers.memory import estimate

    rows, length, entries = target.size(case.settings["shape"], [4, 12, 50])
    data = {"rows": rows, "length": length, "vocabulary": entries}
    options: dict[str, Any] = {
        **base(target),
        **case.settings["options"],
        "max_length": max(length, 16),
        "max_updates": 3,
    }
    if target.tiny:
        options |= {"width": 16, "num_layers": 2}
    outcome, _ = train_once(target, options, data, RandomPairs)
    workload = RandomPairs(options, data, {})
    found = asdict(estimate(workload, 1, target.device))
    return {
        "measured": outcome.peak_memory_bytes,
        "estimate": found["peak_bytes"],
        "parts": found["parts"],
        "device_bytes": found["device_bytes"],
        "details": {k: v for k, v in outcome.details.items() if "memory" in k or "bytes" in k},
    }


def claims(rows: Rows) -> list[Claim]:
    """Nine estimates in ten are near; their order is right."""
    pairs = [(row["estimate"], row["measured"]) for row in rows.values()]
    near = sum(abs(guess / real - 1) <= NEAR for guess, real in pairs)
    correlation = rank_correlation(pairs) if len(pairs) > 1 else None
    within = near / len(pairs) if pairs else None
    return [
        at_least("share of estimates within 20%", within, MIN_WITHIN, f"{near} of {len(pairs)}"),
        at_least("rank correlation of estimate and measured peak", correlation, MIN_CORRELATION),
    ]


def line(row: Row) -> str:
    estimate = row["estimate"] / 1e6
    measured = row["measured"] / 1e6
    return f"estimate {estimate:8.0f} MB, measured {measured:8.0f} MB, {estimate / measured:.2f}"


STAGE = Stage("estimated and measured memory of 20 configurations", cases, measure, claims, line)
