"""Is the estimate of peak memory right? Thirty configurations of the translation workload, each in a fresh process.

    python benchmarks/memory.py [--limit 30]

Prints estimate and measurement of each, how many are within 20% (of those whose estimate exceeds 200 MB), and the rank
correlation; keeps the table in benchmarks/results/memory.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "memory.txt"
BASE: dict[str, Any] = {
    "width": 256, "num_layers": 3, "num_heads": 4, "vocabulary_size": 4000, "max_updates": 6, "optimizer": "adam",
    "compact_memory": True,  # else the resident set holds what the C library keeps in pieces, too
}  # fmt: skip
SINGLE: list[dict[str, Any]] = [
    {"batch_tokens": tokens, "precision": precision, "activation_checkpointing": how}
    for tokens in (1024, 2048, 4096)
    for precision in ("fp32", "bf16")
    for how in ("none", "layers")
]
OTHERS: list[dict[str, Any]] = [
    {"batch_tokens": 8192},
    {"batch_tokens": 8192, "accumulation": 4},
    {"batch_tokens": 4096, "accumulation": 2},
    {"batch_tokens": 4096, "activation_checkpointing": "selective"},
    {"batch_tokens": 2048, "width": 512},
    {"batch_tokens": 1024, "width": 512, "num_layers": 6},
    {"batch_tokens": 2048, "optimizer": "sgd"},
    {"batch_tokens": 2048, "attention_kernel": "math"},
    {"batch_tokens": 4096, "parallelism": "ddp"},
    {"batch_tokens": 4096, "parallelism": "ddp", "precision": "bf16"},
    {"batch_tokens": 4096, "parallelism": "fsdp"},
    {"batch_tokens": 8192, "parallelism": "fsdp", "activation_checkpointing": "layers"},
    {"batch_tokens": 2048, "parallelism": "fsdp", "width": 512, "reshard_after_forward": False},
    {"batch_tokens": 4096, "parallelism": "tensor"},
    {"batch_tokens": 8192, "parallelism": "tensor", "precision": "bf16"},
    {"batch_tokens": 4096, "parallelism": "pipeline"},
    {"batch_tokens": 8192, "parallelism": "pipeline", "schedule": "gpipe"},
    {"batch_tokens": 8192, "parallelism": "pipeline", "schedule": "1f1b", "num_microbatches": 8},
]


def one(params: Mapping[str, Any]) -> dict[str, Any]:
    """Estimate in this process, then measure in new ones."""
    from workers.estimate import estimate
    from workers.local import run_gang
    from workers.parallel import num_ranks
    from workers.protocol import Assignment
    from workers.workloads import WORKLOADS

    ranks = num_ranks(params, {})
    kind = WORKLOADS.get("translation")
    found = estimate(kind(params, {"name": "builtin"}, {}), ranks)
    folder = tempfile.mkdtemp()
    assignment = Assignment("memory", 0, 1, params, None, folder, {"name": "builtin"}, num_ranks=ranks)
    outcome = run_gang(assignment, lambda report: None, lambda: None, measured)
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    return {"estimate": found.peak_bytes, "measured": outcome.peak_memory_bytes, "parts": dict(found.parts)}


def measured(context: Any) -> Any:
    """Train without evaluation, which the estimate leaves out."""
    from workers.memory import PeakMemory
    from workers.workloads import WORKLOADS

    kind: Any = WORKLOADS.get("translation")

    class Quiet(kind):  # type: ignore[misc, valid-type]
        def evaluate(self, model: Any, device: Any) -> dict[str, float]:
            return {}

    workload = Quiet(context.params, context.assignment.data, {}, seed=context.seed)
    workload.prepared  # noqa: B018 (the corpus is no part of the estimate)
    import torch

    context.memory = PeakMemory(torch.device(context.device))
    return workload.run(context)


def rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Spearman's."""
    import numpy as np

    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=len(SINGLE) + len(OTHERS))
    parser.add_argument("--one", type=json.loads)
    chosen = parser.parse_args()
    if chosen.one is not None:
        print(json.dumps(one(chosen.one)))
        return
    lines, pairs = [f"{'configuration':90} estimate MB  measured MB  ratio"], []
    for params in (SINGLE + OTHERS)[: chosen.limit]:
        command = [sys.executable, __file__, "--one", json.dumps({**BASE, **params})]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines.append(f"{params}: {done.stderr.strip()[-300:]}")
        else:
            result = json.loads(done.stdout.splitlines()[-1])
            pairs.append((result["estimate"] / 1e6, result["measured"] / 1e6))
            text = " ".join(f"{key}={value}" for key, value in params.items())
            lines.append(f"{text:90} {pairs[-1][0]:11.0f}  {pairs[-1][1]:11.0f}  {pairs[-1][0] / pairs[-1][1]:5.2f}")
        print(lines[-1], flush=True)
    counted = [(e, m) for e, m in pairs if e > 200]
    within = sum(abs(e / m - 1) <= 0.2 for e, m in counted)
    lines.append(f"within 20%: {within} of {len(counted)}; rank correlation {rank_correlation(pairs):.3f}")
    print(lines[-1])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
