"""The knob table: tokens a second and memory of each precision, layout, kernel and compile mode."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from benchmarks.common.bounds import Claim, at_least
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target, label
from benchmarks.training.gpu_stages._trials import base, speed, train_once
from search_spaces.knobs.table import ATTENTION_LAYOUT, COMPILE

PRECISIONS = ("bf16", "fp32", "tf32", "fp16")
KERNELS = ("sdpa", "math")
QUICK = ("bf16", "fp32")


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    """Each precision, bf16 compiled, then the product of 24 rows, then the other modes."""
    found, product, modes = [], [], []
    precisions = PRECISIONS if target.cuda else QUICK
    for precision, layout, kernel in itertools.product(
        precisions, ATTENTION_LAYOUT.choices, KERNELS
    ):
        options = {"precision": precision, "attention_layout": layout, "attention_kernel": kernel}
        first = (layout, kernel) == ("interleaved", "sdpa")
        case = Case(label(options), options, "uncompiled", 90.0, first and precision in QUICK)
        (found if first else product).append(case)
    for precision, mode in itertools.product(QUICK, COMPILE.choices[1:]):
        options = {"precision": precision, "attention_kernel": "sdpa", "compile": mode}
        name = label(options)
        modes += [Case(name, options, name, 240.0)] if target.cuda else []
    return [*found, *modes[:1], *product, *modes[1:]]


def measure(target: Target, case: Case) -> Row:
    """The first half of the updates is not measured: kernels are chosen and compiled in it."""
    updates = target.size(60, 2)
    options: dict[str, Any] = {
        **base(target),
        **case.settings,
        "batch_tokens": target.size(8192, 256),
        "max_updates": 2 * updates,
        "evaluate_updates": updates,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
    }
    return {"settings": dict(case.settings), **speed(*train_once(target, options))}


def claims(rows: Rows) -> list[Claim]:
    """Half precision is faster than fp32 with the same kernels."""
    plain = {"attention_layout": "interleaved", "attention_kernel": "sdpa"}
    rates = {
        name: rows.get(label({"precision": name, **plain}), {}).get("tokens_per_second")
        for name in QUICK
    }
    ratio = rates["bf16"] / rates["fp32"] if all(rates.values()) else None
    return [at_least("tokens a second with bf16, divided by those with fp32", ratio, 1.0)]


def line(row: Row) -> str:
    peak = (row["peak_memory_bytes"] or 0) / 1e6
    milliseconds = 1000 * row["seconds_per_update"]
    return f"{row['tokens_per_second']:10.0f} tokens/s {milliseconds:8.1f} ms {peak:8.0f} MB"


def best(rows: Rows) -> dict[str, Any]:
    """The settings of the fastest row; of bf16 with fast attention if there is no row."""
    measured = [row for row in rows.values() if "failure" not in row]
    if not measured:
        return {"precision": "bf16", "attention_kernel": "sdpa"}
    return dict(max(measured, key=lambda row: float(row["tokens_per_second"]))["settings"])


STAGE = Stage("knob table: 24 rows, and each compile mode", cases, measure, claims, line)
