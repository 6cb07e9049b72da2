"""Does the host wait for the GPU in updates 5 to 20, and are graphs of a pipeline refused?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.bounds import Claim
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, base, gang, train_once
from workers.workloads.translation import Translation

FIRST, LAST = 5, 20  # updates; those before warm up


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    return [
        Case(f"updates {FIRST} to {LAST}", {"what": "updates"}, "updates", 120.0, quick=True),
        Case("graphs of a pipeline", {"what": "graphs"}, "graphs", 180.0, quick=True),
    ]


def measure(target: Target, case: Case) -> Row:
    """Each case has a function of its own."""
    measures = {
        "updates": _updates,
        "graphs": _graphs,
    }
    found: Row = measures[case.settings["what"]](target)
    return found


def _updates(target: Target) -> Row:
    """Torch raises if the host waits within these updates."""
    import torch

    def watch(mode: str) -> None:
        if target.cuda:
            torch.cuda.set_sync_debug_mode(mode)

    seen: list[int] = []

    class Watched(Untested):
        __module__ = Translation.__module__

        def learning_rate(self, update: int) -> float:
            if update == FIRST:
                watch("error")
            if update == LAST + 1:
                watch("default")
            seen.append(update)
            return super().learning_rate(update)

    options: dict[str, Any] = {
        **base(target),
        "precision": "bf16",
        "loader_workers": 1,
        "batch_tokens": target.size(8192, 256),
        "max_updates": LAST + 2,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
    }
    try:
        train_once(target, options, kind=Watched)
    finally:
        watch("default")
    return {"updates": max(seen)}


def _graphs(target: Target) -> Row:
    """The stages of a pipeline are refused in a mode that records CUDA graphs."""
    options = {"parallelism": "pipeline", "ranks": 2, "backend": "gloo", "max_updates": 2}
    outcome, _ = gang(target, {**base(target), **options, "compile": "reduce-overhead"})
    if "cannot compute the microbatches" not in outcome.message:
        raise RuntimeError(f"it was not refused: {outcome.failure}: {outcome.message}")
    return {"message": outcome.message}


def claims(rows: Rows) -> list[Claim]:
    """A wait or a missing refusal is a failed case."""
    return []


def line(row: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items() if key in _SHOWN)


_SHOWN = ("updates", "message")

STAGE = Stage("waits of the host, refusals", cases, measure, claims, line)
