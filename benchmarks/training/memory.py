"""Is the estimate of peak memory right? More than thirty configurations, each measured in new processes.

    python benchmarks/training/memory.py [--again]                     measure what is not kept yet (or all), print the table
    python benchmarks/training/memory.py --estimate                    estimate the kept rows anew
    python benchmarks/training/memory.py --quick [--check]             three configurations, kept nowhere
    python benchmarks/training/memory.py --table [--check]             the kept rows; --check: exit status 1 where one is broken

Of the configurations whose estimate exceeds 200 MB, nine in ten must be estimated within 20% of what is measured, and
the rank correlation must be at least 0.95. `state` is what the largest rank holds of parameters and optimizer state,
and its share of what `single` holds: at most 0.6 for fsdp and tensor on two ranks.

The constants of workers/memory/estimate.py were fitted to translation without accumulation, on one rank; every other row was
never looked at for that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from forked import elsewhere, run_gang, warm

RESULTS = Path(__file__).parents[1] / "results" / "memory.jsonl"
SMALLEST = 200e6
BOUNDS = {"within": 0.9, "correlation": 0.95, "share": 0.6}
# Else the resident set holds what the C library keeps in pieces, too.
COMMON: dict[str, Any] = {"max_updates": 2, "optimizer": "adam", "compact_memory": True}
BASE: dict[str, dict[str, Any]] = {
    "translation": {"width": 256, "num_layers": 3, "num_heads": 4, "vocabulary_size": 4000},
    "image_classification": {
        "batch_size": 256,
        "dropout": 0.0,
        "optimized_metric": None,
        "patience": None,
        "plateau_evaluations": None,
        "average_best": 0,
    },
}
DATA: dict[str, dict[str, Any]] = {
    "translation": {"name": "builtin"},
    "image_classification": {"train": 2600, "test": 10},
}
SINGLE: list[dict[str, Any]] = [
    {"batch_tokens": tokens, "precision": precision, "activation_checkpointing": how}
    for tokens in (1024, 2048)
    for precision in ("fp32", "bf16")
    for how in ("none", "selective", "layers")
]
TRANSLATION: list[dict[str, Any]] = [
    {"batch_tokens": 4096, "accumulation": 2},
    {"batch_tokens": 1024, "width": 512},
    {"batch_tokens": 1024, "width": 512, "precision": "bf16"},
    {"batch_tokens": 1024, "width": 512, "activation_checkpointing": "layers"},
    {"batch_tokens": 1024, "width": 384},
    {"batch_tokens": 2048, "width": 384, "precision": "bf16", "activation_checkpointing": "layers"},
    {"batch_tokens": 512, "width": 512, "num_layers": 6},
    {"batch_tokens": 2048, "optimizer": "sgd"},
    {"batch_tokens": 2048, "attention_kernel": "math"},
    {"batch_tokens": 4096, "parallelism": "ddp"},
    {"batch_tokens": 4096, "parallelism": "ddp", "precision": "bf16"},
    {"batch_tokens": 4096, "parallelism": "fsdp"},
    {"batch_tokens": 4096, "parallelism": "fsdp", "activation_checkpointing": "layers"},
    {"batch_tokens": 1024, "parallelism": "fsdp", "width": 512},
    {"batch_tokens": 1024, "parallelism": "fsdp", "width": 512, "reshard_after_forward": False},
    {"batch_tokens": 2048, "parallelism": "tensor"},
    {"batch_tokens": 1024, "parallelism": "tensor", "width": 512},
    {"batch_tokens": 2048, "parallelism": "tensor", "precision": "bf16"},
    {"batch_tokens": 4096, "parallelism": "pipeline"},
    {"batch_tokens": 4096, "parallelism": "pipeline", "schedule": "gpipe"},
    {"batch_tokens": 8192, "parallelism": "pipeline", "schedule": "1f1b", "num_microbatches": 8},
    {"batch_tokens": 4096, "parallelism": "embedding_server", "tied_embeddings": False},
]
IMAGES: list[dict[str, Any]] = [
    {},
    {"precision": "bf16"},
    {"batch_size": 384},
    {"activation_checkpointing": "layers"},
    {"parallelism": "ddp", "batch_size": 384},
    {"parallelism": "fsdp", "batch_size": 384},
    {"parallelism": "tensor"},
]
ALL = [
    *(("translation", params) for params in [*SINGLE, *TRANSLATION]),
    *(("image_classification", params) for params in IMAGES),
]
QUICK = [ALL[0], ALL[4], ("image_classification", IMAGES[0])]
Row = dict[str, Any]


def one(name: str, params: Mapping[str, Any]) -> Row:
    """Estimate in a new process, then measure in a new one for each rank."""
    from workers.parallel import num_ranks
    from workers.protocol import Assignment

    whole = {**COMMON, **BASE[name], **params}
    ranks = num_ranks(whole, {})
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_gang(
            Assignment(name, 0, 1, whole, None, folder, DATA[name], num_ranks=ranks), measured
        )
    if outcome.failure:
        return {
            "workload": name,
            "params": dict(params),
            "failure": f"{outcome.failure}: {outcome.message}",
        }
    states = outcome.details.get("rank_state_bytes") or [outcome.details["state_bytes"]]
    held = max(sum(state.values()) for state in states)
    row = {"workload": name, "params": dict(params), "ranks": ranks, "state": held}
    return estimated({**row, "measured": outcome.peak_memory_bytes})


def estimated(row: Row) -> Row:
    """The row with what is estimated now."""
    from workers.memory.estimate import estimate
    from workers.workloads import WORKLOADS

    name, whole = row["workload"], {**COMMON, **BASE[row["workload"]], **row["params"]}
    found = elsewhere(
        lambda: asdict(estimate(WORKLOADS.get(name)(whole, DATA[name], {}), row["ranks"]))
    )
    return {**row, "estimate": found["peak_bytes"], "parts": found["parts"]}


def prepare() -> None:
    """Import everything and read the data, once for all processes that are forked."""
    from workers.workloads import WORKLOADS

    warm()
    for name, data in DATA.items():
        next(iter(WORKLOADS.get(name)({**COMMON, **BASE[name]}, data, {}).train_batches(0)))


def measured(context: Any) -> Any:
    """Train without evaluation, which the estimate leaves out."""
    import torch

    from workers.device.peak_memory import PeakMemory
    from workers.workloads import WORKLOADS

    kind: Any = WORKLOADS.get(context.assignment.sweep)

    class Quiet(kind):  # type: ignore[misc, valid-type]
        __module__ = kind.__module__  # its data are read by a module beside it

        def evaluate(self, model: Any, device: Any) -> dict[str, float]:
            return {}

    workload = Quiet(context.params, context.assignment.data, {}, seed=context.seed)
    next(iter(workload.train_batches(0)))  # the data are no part of the estimate
    context.memory = PeakMemory(torch.device(context.device))
    return workload.run(context)


def rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Spearman's."""
    import numpy as np

    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def share(row: Row, rows: list[Row]) -> float | None:
    """Of what `single` holds of the same model and optimizer."""
    for other in rows:
        keys = ("width", "num_layers", "optimizer", "tied_embeddings")
        same = all(other["params"].get(key) == row["params"].get(key) for key in keys)
        if same and other["workload"] == row["workload"] and other.get("ranks") == 1:
            return float(row["state"] / other["state"])
    return None


def report(rows: list[Row]) -> tuple[str, list[str]]:
    """The table, and what must hold and does not."""
    lines = [f"{'configuration':84} estimate MB  measured MB  ratio  state MB  share"]
    problems = [
        f"{row['workload']} {row['params']}: {row['failure']}" for row in rows if "failure" in row
    ]
    sound = [row for row in rows if "failure" not in row]
    for row in sound:
        text = " ".join([row["workload"], *(f"{k}={v}" for k, v in row["params"].items())])
        estimate, peak, part = row["estimate"] / 1e6, row["measured"] / 1e6, share(row, sound)
        figures = (
            f"{estimate:11.0f}  {peak:11.0f}  {estimate / peak:5.2f}  {row['state'] / 1e6:8.1f}"
        )
        lines.append(f"{text:84} {figures}  {'-' if part is None else f'{part:.2f}'}")
        strategy = row["params"].get("parallelism")
        if (
            part is not None
            and strategy in ("fsdp", "tensor")
            and row["ranks"] == 2
            and part > BOUNDS["share"]
        ):
            problems.append(f"{text} holds {part:.2f} of what single holds")
    counted = [(row["estimate"], row["measured"]) for row in sound if row["estimate"] > SMALLEST]
    near = sum(abs(e / m - 1) <= 0.2 for e, m in counted)
    correlation = rank_correlation(counted) if len(counted) > 1 else 1.0
    lines.append(
        f"above 200 MB: {near} of {len(counted)} within 20%; rank correlation {correlation:.3f}"
    )
    if near < BOUNDS["within"] * len(counted) or correlation < BOUNDS["correlation"]:
        problems.append(lines[-1])
    return "\n".join(lines), problems


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--count", type=int, default=len(ALL), help="so many configurations from --first on"
    )
    for flag in ("quick", "table", "check", "again", "estimate"):
        parser.add_argument(f"--{flag}", action="store_true")
    chosen = parser.parse_args()
    rows = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    if chosen.estimate:
        prepare()
        rows = [row if "failure" in row else estimated(row) for row in rows]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif not chosen.table:
        prepare()
        kept = (
            {}
            if chosen.quick or chosen.again
            else {json.dumps([row["workload"], row["params"]]): row for row in rows}
        )
        for name, params in (
            QUICK if chosen.quick else ALL[chosen.first : chosen.first + chosen.count]
        ):
            if json.dumps([name, params]) in kept:
                continue
            kept[json.dumps([name, params])] = row = one(name, params)
            print(
                name,
                params,
                row.get("failure") or f"{row['estimate'] / 1e6:.0f} {row['measured'] / 1e6:.0f}",
                flush=True,
            )
            if not chosen.quick:
                keys = [json.dumps([name, params]) for name, params in ALL]
                rows = [kept[key] for key in keys if key in kept]
                RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
        rows = list(kept.values()) if chosen.quick else rows
    text, problems = report(rows)
    print(text)
    print("\n".join(problems) or "every bound holds")
    if chosen.check and (problems or not rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
