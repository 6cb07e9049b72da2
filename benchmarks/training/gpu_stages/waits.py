"""Does the host wait for the GPU in an update, and what do failed ranks and refusals cost?

What the second review of the GPU path left to a GPU: waits in updates 5 to 20, a rank that fails
under NCCL (with two GPUs), and CUDA graphs of a pipeline's microbatches.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.bounds import Claim, at_most
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, base, gang, train_once
from workers.context import Context
from workers.protocol import Assignment
from workers.workloads.translation import Translation

FIRST, LAST = 5, 20  # updates; those before warm up
MAX_SECONDS = 20.0  # from the failure of a rank to the outcome: the grace, and the process group


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    found = [
        Case(f"updates {FIRST} to {LAST}", {"what": "updates"}, "updates", 120.0, quick=True),
        Case("graphs of a pipeline", {"what": "graphs"}, "graphs", 180.0, quick=True),
    ]
    if not target.cuda or _gpus() > 1:
        found.append(Case("a rank that fails", {"what": "rank"}, "rank", 180.0, quick=True))
    return found


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def measure(target: Target, case: Case) -> Row:
    """Each case has a function of its own."""
    measures = {
        "updates": _updates,
        "graphs": _graphs,
        "rank": _rank,
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


def _rank(target: Target) -> Row:
    """Seconds from the failure of rank 1 to the outcome of the attempt, and its cause."""
    from workers.runtime.processes import run_gang

    with tempfile.TemporaryDirectory() as folder:
        one = Assignment("gpu", 0, 1, {}, None, folder, num_ranks=2, gpus=target.gpus)
        outcome = run_gang(one, lambda report: None, lambda: None, failing)
        ended = time.time()
        begun = float((Path(folder) / "failed").read_text())
    if "the cause" not in outcome.message:
        raise RuntimeError(f"the cause is lost: {outcome.message}")
    return {"seconds": ended - begun, "message": outcome.message}


def failing(trial: Context) -> None:
    """Two ranks sum; one of them fails while the other waits for it."""
    import torch
    import torch.distributed as dist

    from workers.ranks.process_group import connect, disconnect

    device = torch.device(trial.device)
    connect(trial.rank, trial.world_size, trial.rendezvous, device)
    failed = True
    try:
        total = torch.ones(1 << 20, device=device)
        for step in range(10):
            if step == 5 and trial.rank == 1:
                (trial.folder / "failed").write_text(str(time.time()))
                trial.note_failure()
                raise RuntimeError("the cause")
            dist.all_reduce(total)
            float(total[0])
        failed = False
    finally:
        disconnect(failed=failed)


def claims(rows: Rows) -> list[Claim]:
    """A rank that fails ends the others soon."""
    seconds = rows.get("a rank that fails", {}).get("seconds")
    return [at_most("seconds until a failed rank has ended all", seconds, MAX_SECONDS)]


def line(row: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in row.items() if key in _SHOWN)


_SHOWN = ("updates", "message", "seconds")

STAGE = Stage("waits of the host, failed ranks, refusals", cases, measure, claims, line)
