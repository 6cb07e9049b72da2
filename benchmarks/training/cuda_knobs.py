"""Throughput and peak memory of each precision, attention layout, kernel and compile mode on a GPU.

    python benchmarks/training/cuda_knobs.py [--updates 60]

Prints a table and stores it in benchmarks/results/cuda_knobs.txt. Without a GPU nothing is
measured.
"""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import torch

from benchmarks.common.options import parser
from benchmarks.common.store import RESULTS
from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run
from workers.workloads import WORKLOADS

TABLE = RESULTS / "cuda_knobs.txt"
BASE: dict[str, Any] = {
    "width": 512,
    "num_layers": 6,
    "num_heads": 8,
    "batch_tokens": 8192,
    "optimizer": "adam",
}
KNOBS: dict[str, tuple[Any, ...]] = {
    "precision": ("fp32", "tf32", "bf16", "fp16"),
    "attention_layout": ("interleaved", "separate", "packed"),
    "attention_kernel": ("math", "sdpa"),
    "compile": ("off", "default", "reduce-overhead"),
}


def measure(params: dict[str, Any], updates: int) -> str:
    """A line of the table. The first half of the updates is not measured: it compiles."""
    kind: Any = WORKLOADS.get("translation")

    class Quiet(kind):  # type: ignore[misc, valid-type]
        __module__ = kind.__module__

        def evaluate(self, model: Any, device: Any) -> dict[str, float]:
            return {}

    reports: list[Report] = []
    options = {**BASE, **params, "max_updates": 2 * updates, "evaluate_updates": updates}
    attempt = Assignment(
        "cuda", 0, 1, options, None, tempfile.mkdtemp(), {"name": "builtin"}, gpus=1.0
    )
    context = Context(attempt, reports.append, device="cuda:0")
    outcome = run(context, lambda c: Quiet(c.params, c.assignment.data, {}, seed=0).run(c))
    text = " ".join(f"{value!s:15}" for value in params.values())
    if outcome.failure:
        return f"{text} {outcome.failure}: {outcome.message[:80]}"
    last = reports[-1].metrics
    peak = outcome.peak_memory_bytes or 0
    speed = f"{last['items_per_second']:12.0f} {1000 * last['seconds_per_update']:12.1f}"
    return f"{text} {speed} {peak / 1e6:9.0f}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--updates", type=int, default=60)
    updates = options.parse_args().updates
    if not torch.cuda.is_available():
        print("there is no GPU: nothing was measured")
        return
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {BASE}"]
    lines.append(" ".join(f"{name:15}" for name in KNOBS) + "     tokens/s    ms/update    peak MB")
    for values in itertools.product(*KNOBS.values()):
        lines.append(measure(dict(zip(KNOBS, values, strict=True)), updates))
        print(lines[-1], flush=True)
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
