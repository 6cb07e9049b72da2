"""Knobs that a configuration must name: speed, memory, and losses equal to those without them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from benchmarks.common.bounds import Claim, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target, label
from benchmarks.training.gpu_stages._trials import base, speed, train_once
from benchmarks.training.gpu_stages.losses import largest_difference

EQUAL = 2e-2  # relative difference in bf16
PLAIN = "as they are"
TRIED: tuple[dict[str, Any], ...] = (
    {"attention_backend": "flash"},
    {"attention_backend": "cudnn"},
    {"attention_backend": "efficient"},
    {"attention_backend": "math"},
    {"activation_checkpointing": "layers"},
    {"activation_checkpointing": "layers", "checkpoint_every": 2},
    {"chunked_loss": True},
    {"deterministic": True},
    {"compile": "default", "compile_scope": "layers"},
    {"compile": "cudagraphs"},
    {"compile": "max-autotune"},
)
OTHER_RULES: tuple[dict[str, Any], ...] = (
    {"optimizer": "adafactor"},
    {"optimizer": "muon"},
    {"width": 1024},  # float8 leaves smaller layers as they are
    {"width": 1024, "float8": "rowwise"},
    {"width": 1024, "float8": "rowwise", "compile": "default"},
)
ON_CPU = ("attention_backend=math", "chunked_loss=True", "deterministic=True")


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    """Each that compiles or sets process-wide switches in a process of its own."""
    found = [Case(PLAIN, {}, "plain", 60.0, quick=True)]
    able = find_spec("torchao") is not None
    for options in (*TRIED, *OTHER_RULES):
        name = label(options)
        compiles = "compile" in options
        apart = compiles or "deterministic" in options
        seconds = 200.0 if compiles else 60.0
        if (target.cuda or name in ON_CPU) and (able or "float8" not in options):
            found.append(Case(name, options, name if apart else "plain", seconds))
    return sorted(found, key=lambda case: case.process != "plain")


def measure(target: Target, case: Case) -> Row:
    """Losses of four windows; speed is that of the last one."""
    updates = target.size(80, 4)
    options: dict[str, Any] = {
        **base(target),
        "precision": "bf16",
        "attention_kernel": "sdpa",
        "dropout": 0.0,
        "batch_tokens": target.size(8192, 256),
        "max_updates": updates,
        "evaluate_updates": updates // 4,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
        **case.settings,
    }
    outcome, reports = train_once(target, options)
    losses = [report.metrics["train_loss"] for report in reports]
    return {"losses": losses, **speed(outcome, reports)}


def claims(rows: Rows) -> list[Claim]:
    """No knob but the optimizer changes what is computed."""
    plain = rows.get(PLAIN, {}).get("losses")
    found = []
    for name in map(label, TRIED):
        losses = rows.get(name, {}).get("losses")
        difference = largest_difference(losses, plain) if losses and plain else None
        found.append(at_most(f"loss with {name}, relative to that without", difference, EQUAL))
    return found


def line(row: Row) -> str:
    peak = (row["peak_memory_bytes"] or 0) / 1e6
    return f"{row['tokens_per_second']:10.0f} tokens/s {peak:8.0f} MB, loss {row['losses'][-1]:.4f}"


STAGE = Stage("knobs that a configuration must name", cases, measure, claims, line)
