"""Is the estimate of peak memory right? Each configuration is measured in new processes.

    python benchmarks/training/memory.py [--again]             measure the missing rows (or all)
    python benchmarks/training/memory.py --quick [--check]     three configurations
    python benchmarks/training/memory.py --table [--check]     the stored rows

Of the configurations with an estimate above 200 MB, nine in ten must be within 20% of the measured
peak, and the rank correlation must be at least 0.95.

The constants of workers/memory/__init__.py were fitted to translation on one rank without
accumulation. All other rows are a test of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.training.forked import elsewhere, run_gang, warm

ROWS = store.RESULTS / "memory.jsonl"
SMALLEST = 200e6
MIN_WITHIN = 0.9
MIN_CORRELATION = 0.95
# Without `compact_memory` the resident set also holds blocks that the C library keeps.
COMMON: dict[str, Any] = {"max_updates": 2, "optimizer": "adam", "compact_memory": True}
BASE: dict[str, dict[str, Any]] = {
    "translation": {"width": 256, "num_layers": 3, "num_heads": 4, "vocabulary_size": 4000},
    "image_classification": {
        "batch_size": 256,
        "dropout": 0.0,
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
    """Estimate in a new process, then measure each rank in a new process."""
    from workers.memory import estimate
    from workers.parallel import num_ranks
    from workers.protocol import Assignment
    from workers.workloads import WORKLOADS

    whole = {**COMMON, **BASE[name], **params}
    ranks = num_ranks(whole, {})
    with tempfile.TemporaryDirectory() as folder:
        attempt = Assignment(name, 0, 1, whole, None, folder, DATA[name], num_ranks=ranks)
        outcome = run_gang(attempt, measured)
    row: Row = {"workload": name, "params": dict(params)}
    if outcome.failure:
        return {**row, "failure": f"{outcome.failure}: {outcome.message}"}
    found = elsewhere(lambda: asdict(estimate(WORKLOADS.get(name)(whole, DATA[name], {}), ranks)))
    row |= {"ranks": ranks, "measured": outcome.peak_memory_bytes}
    return {**row, "estimate": found["peak_bytes"], "parts": found["parts"]}


def prepare() -> None:
    """Import everything and read the data once, for all forked processes."""
    from workers.workloads import WORKLOADS

    warm()
    for name, data in DATA.items():
        next(iter(WORKLOADS.get(name)({**COMMON, **BASE[name]}, data, {}).train_batches(0)))


def measured(context: Any) -> Any:
    """Train without evaluation, which is no part of the estimate."""
    from workers.workloads import WORKLOADS

    kind: Any = WORKLOADS.get(context.assignment.sweep)

    class Quiet(kind):  # type: ignore[misc, valid-type]
        __module__ = kind.__module__  # the module beside it reads the data

        def evaluate(self, model: Any, device: Any) -> dict[str, float]:
            return {}

    workload = Quiet(context.params, context.assignment.data, {}, seed=context.seed)
    next(iter(workload.train_batches(0)))  # the data are no part of the estimate
    # Its warm-up resets the mark of the process, of which another measurement would not know.
    context.memory.restart()
    return workload.run(context)


def rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Spearman's rank correlation."""
    import numpy as np

    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def table(rows: list[Row]) -> str:
    """A line for each row."""
    lines = [f"{'configuration':84} estimate MB  measured MB  ratio"]
    for row in rows:
        words = [row["workload"], *(f"{k}={v}" for k, v in row["params"].items())]
        text = f"{' '.join(words):84} "
        if "failure" in row:
            lines.append(text + row["failure"])
            continue
        estimate = row["estimate"] / 1e6
        peak = row["measured"] / 1e6
        lines.append(f"{text}{estimate:11.0f}  {peak:11.0f}  {estimate / peak:5.2f}")
    return "\n".join(lines)


def claims(rows: list[Row], asked: list[tuple[str, dict[str, Any]]]) -> list[Claim]:
    """Every configuration was measured, and estimates are near."""
    sound = [row for row in rows if "failure" not in row]
    known = {key_of(row["workload"], row["params"]) for row in sound}
    missing = [f"{name} {params}" for name, params in asked if key_of(name, params) not in known]
    counted = [(row["estimate"], row["measured"]) for row in sound if row["estimate"] > SMALLEST]
    near = sum(abs(e / m - 1) <= 0.2 for e, m in counted)
    within = near / len(counted) if counted else None
    correlation = rank_correlation(counted) if len(counted) > 1 else None
    note = f"{near} of {len(counted)}"
    return [
        complete("every configuration without failure", missing),
        at_least("share of estimates within 20%, above 200 MB", within, MIN_WITHIN, note),
        at_least("rank correlation, above 200 MB", correlation, MIN_CORRELATION),
    ]


def key_of(name: str, params: Mapping[str, Any]) -> str:
    """The key of a row."""
    return json.dumps([name, params])


def measure(
    asked: list[tuple[str, dict[str, Any]]], rows: list[Row], *, again: bool, keep: bool
) -> list[Row]:
    """The rows, with the missing ones (all with `again`); each is stored at once if `keep`."""
    prepare()
    kept = {key_of(row["workload"], row["params"]): row for row in rows}
    for name, params in asked:
        if key_of(name, params) in kept and not again:
            continue
        kept[key_of(name, params)] = row = one(name, params)
        figures = row.get("failure") or f"{row['estimate'] / 1e6:.0f} {row['measured'] / 1e6:.0f}"
        print(name, params, figures, flush=True)
        if keep:
            keys = [key_of(name, params) for name, params in ALL]
            store.write(ROWS, [kept[key] for key in keys if key in kept])
    return list(kept.values())


def main() -> int:
    """Measure the missing rows, store them, and print the table."""
    parser = benchmark_parser(__doc__, "three configurations")
    parser.add_argument("--again", action="store_true", help="measure stored rows, too")
    given = parser.parse_args()
    rows = [] if given.quick else store.read(ROWS)
    asked = QUICK if given.quick else ALL
    if not given.table:
        rows = measure(asked, rows, again=given.again, keep=not given.quick)
    print(table(rows))
    return conclude(claims(rows, asked)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
