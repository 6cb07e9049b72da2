"""The share of the time in which the GPU computes, at the fastest configuration of translation.

And its MFU (Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311): the operations of the model's
products an update, divided by those that the GPU can compute in that time.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.bounds import Claim, at_least
from benchmarks.training.gpu_stages._case import Case, Row, Rows, Stage, Target
from benchmarks.training.gpu_stages._trials import Untested, base, train_once
from benchmarks.training.gpu_stages.knobs import best
from workers.workloads.translation import Translation

MIN_BUSY = 0.9
WARM = 60  # updates before the profile
TRACED = 40
COUNTED = 3  # updates whose operations are counted
# Products a second in bf16 without sparsity, by a part of the GPU's name (NVIDIA's data sheets).
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 3090": 71e12}
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


def cases(target: Target, known: Mapping[str, Rows]) -> list[Case]:
    settings = best(known.get("knobs", {}))
    return [Case("translation", settings, "busy", 300.0, quick=True)]


def measure(target: Target, case: Case) -> Row:
    """Profile some updates of a training; the trainer asks for a learning rate once an update."""
    from torch.profiler import ProfilerActivity, profile

    warm = target.size(WARM, 2)
    traced = target.size(TRACED, 3)
    kinds = ON_GPU if target.cuda else ("cpu_op",)
    activity = ProfilerActivity.CUDA if target.cuda else ProfilerActivity.CPU
    profiler = profile(activities=[activity])
    clock: list[float] = []

    class Profiled(Untested):
        __module__ = Translation.__module__

        def learning_rate(self, update: int) -> float:
            if update == warm + 1 and not clock:  # it asks once for each group of parameters
                _synchronise(target)
                profiler.start()
                clock.append(time.perf_counter())
            if update == warm + traced + 1 and len(clock) == 1:
                _synchronise(target)
                clock.append(time.perf_counter())
                profiler.stop()
            return super().learning_rate(update)

    options: dict[str, Any] = {
        **base(target),
        **case.settings,
        "loader_workers": 1,
        "batch_tokens": target.size(8192, 256),
        "max_updates": warm + traced + 2,
        "evaluate_seconds": None,
        "checkpoint_seconds": None,
    }
    train_once(target, options, kind=Profiled)
    operations = flops(target, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in kinds and "dur" in e]
    seconds = clock[1] - clock[0]
    return {
        "settings": dict(case.settings),
        "share": covered(spans) / 1e6 / seconds,
        "launches_per_update": len(spans) / traced,
        "seconds_per_update": seconds / traced,
        "flops_per_update": operations,
        "mfu": share_of_peak(operations * traced / seconds, _gpu_name(target)),
    }


def flops(target: Target, options: Mapping[str, Any]) -> float:
    """Operations of the products of an update, forward and backward, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        train_once(target, {**options, "compile": "off", "max_updates": COUNTED})
    return float(counter.get_total_flops()) / COUNTED


def share_of_peak(per_second: float, gpu: str) -> float | None:
    """The share of what a GPU of this name can compute in bf16; None if that is not known."""
    return next((per_second / peak for name, peak in PEAK.items() if name in gpu), None)


def _gpu_name(target: Target) -> str:
    import torch

    return torch.cuda.get_device_name() if target.cuda else "none"


def _synchronise(target: Target) -> None:
    if target.cuda:
        import torch

        torch.cuda.synchronize()


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total = 0.0
    end = float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def claims(rows: Rows) -> list[Claim]:
    """The GPU hardly waits."""
    share = rows.get("translation", {}).get("share")
    return [at_least("busy share of the GPU, translation at its fastest", share, MIN_BUSY)]


def line(row: Row) -> str:
    milliseconds = 1000 * row["seconds_per_update"]
    return (
        f"busy {row['share']:.3f} of the time, {row['launches_per_update']:.0f} kernels and "
        f"{milliseconds:.1f} ms an update, {row['flops_per_update']:.3g} operations, "
        f"MFU {row['mfu'] if row['mfu'] is None else round(row['mfu'], 3)}, {row['settings']}"
    )


STAGE = Stage("busy share of the GPU", cases, measure, claims, line)
