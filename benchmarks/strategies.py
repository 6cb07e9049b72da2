"""Does every parallelism strategy compute the function of `single`? Twenty updates of each on the same global batches.

    python benchmarks/strategies.py                  measure both workloads, keep the rows, print the tables
    python benchmarks/strategies.py --quick [--check]     six updates on 2 ranks, kept nowhere
    python benchmarks/strategies.py --table [--check]     the kept rows; --check: exit status 1 where a bound is broken

For each strategy on 2 and where it applies 4 gloo ranks: the largest relative difference of the training loss from
`single` in fp32 (at most 1e-5), that of bf16 from `single` in fp32 (at most 2e-2), both with the optimizer of the
workload's trial 0, and under plain SGD the largest absolute difference of a final weight (at most 1e-4), with the norm
of all differences over the norm of all weights. `single accumulation=3` shows what another order of summation does on
one rank.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workers import checkpoint
from workers.context import Context
from workers.local import run_gang
from workers.protocol import Assignment, Report
from workers.run import run
from workers.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results" / "strategies.jsonl"
BOUNDS = {"fp32": 1e-5, "bf16": 2e-2, "weights": 1e-4}
WORKLOAD: dict[str, dict[str, Any]] = {
    "translation": {
        "width": 64, "num_layers": 2, "num_heads": 4, "batch_tokens": 1024, "dropout": 0.0, "learning_rate": 1e-3,
        "warmup_updates": 10, "tied_embeddings": False, "attention_layout": "interleaved",
    },
    "image_classification": {
        "filters": 16, "dense_units": 128, "batch_size": 64, "dropout": 0.0, "dense_dropout": 0.0,
    },
}  # fmt: skip
DATA: dict[str, dict[str, Any]] = {
    "translation": {"name": "builtin"},
    "image_classification": {"train": 2000, "test": 100},
}
SGD_RATE = {"translation": 0.1, "image_classification": 0.02}
ON_RANKS: dict[int, list[dict[str, Any]]] = {
    1: [{"parallelism": "single"}, {"parallelism": "single", "accumulation": 3}],
    2: [
        {"parallelism": "ddp"},
        {"parallelism": "ddp", "accumulation": 3},
        {"parallelism": "ddp", "static_graph": True},
        {"parallelism": "ddp", "unused_parameters": True},
        {"parallelism": "fsdp", "reshard_after_forward": True},
        {"parallelism": "fsdp", "reshard_after_forward": False, "accumulation": 3},
        {"parallelism": "tensor"},
        {"parallelism": "pipeline", "schedule": "gpipe"},
        {"parallelism": "pipeline", "schedule": "1f1b"},
        {"parallelism": "embedding_server"},
    ],
    4: [
        {"parallelism": "ddp"},
        {"parallelism": "fsdp"},
        {"parallelism": "tensor"},
        {"parallelism": "pipeline"},
        {"parallelism": "embedding_server"},
        {"parallelism": "data_tensor"},
        {"parallelism": "data_pipeline"},
    ],
}
# The image model has no embedding to serve, and three parts, which four stages cannot be cut from.
LACKS = {
    ("image_classification", 2): {"embedding_server"},
    ("image_classification", 4): {"embedding_server", "pipeline"},
}
Row = dict[str, Any]


def variants(workload: str, updates: int) -> list[dict[str, Any]]:
    """Settings of the three runs of each strategy: fp32, bf16, and plain SGD."""
    common = {**WORKLOAD[workload], "max_updates": updates, "evaluate_updates": 1, "max_epochs": 10}
    sgd = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": SGD_RATE[workload]}
    return [{**common, **variant} for variant in ({}, {"precision": "bf16"}, sgd)]


def gang(folder: Path, workload: str, trials: list[dict[str, Any]], ranks: int) -> list[dict[str, Any]]:
    """Train each in turn in one gang; losses by update, or the failure, and the folder of each."""
    folder.mkdir()
    assignment = Assignment(
        "bench", 0, 1, {}, None, str(folder), data=DATA[workload], seed=1, num_ranks=ranks,
        fixed={"workload": workload, "trials": trials},
    )  # fmt: skip
    outcome = run_gang(assignment, lambda report: None, lambda: None, in_turn)
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


def in_turn(context: Context) -> None:
    """One rank's part in all trials."""
    results = []
    for index, params in enumerate(context.assignment.fixed["trials"]):
        reports: list[Report] = []
        attempt = replace(context.assignment, params=params, folder=f"{context.folder}/{index}", fixed={})
        (context.folder / str(index)).mkdir(exist_ok=True)
        meeting = f"{context.rendezvous}-{index}" if context.world_size > 1 else ""
        inner = Context(attempt, reports.append, rank=context.rank, world_size=context.world_size, rendezvous=meeting)
        outcome = run(inner, train_quietly(context.assignment.fixed["workload"]))
        losses = [report.metrics["train_loss"] for report in reports if "train_loss" in report.metrics]
        results.append({"losses": losses, "failure": outcome.message if outcome.failure else None})
        print(params, outcome.failure, outcome.details.get("traceback", ""), flush=True)
    if context.rank == 0:
        (context.folder / "results.json").write_text(json.dumps(results))


def train_quietly(name: str) -> Any:
    """An objective that trains a workload and evaluates nothing."""
    kind: Any = WORKLOADS.get(name)

    class Quiet(kind):  # type: ignore[misc, valid-type]
        __module__ = kind.__module__  # its data are read by a module beside it

        def evaluate(self, model: Any, device: Any) -> Mapping[str, float]:
            return {}

    return lambda c: Quiet(c.params, c.assignment.data, {}, seed=c.seed).run(c)


def difference(found: list[float], reference: list[float]) -> float:
    """Largest relative difference; infinite where a loss is missing."""
    if len(found) != len(reference):
        return float("inf")
    return max(abs(a / b - 1) for a, b in zip(found, reference, strict=True))


def weights_difference(found: Path, reference: Path) -> tuple[float, float]:
    """Largest absolute difference of a weight, and the norm of all differences over that of all weights."""
    a, b = checkpoint.load(found), checkpoint.load(reference)
    if a is None or b is None or a.model.keys() != b.model.keys():
        return float("inf"), float("inf")
    differences = [a.model[name].double() - tensor.double() for name, tensor in b.model.items()]
    largest = max(float(d.abs().max()) for d in differences)
    squares = sum(float(d.square().sum()) for d in differences)
    return largest, math.sqrt(squares / sum(float(t.double().square().sum()) for t in b.model.values()))


def measure(workload: str, updates: int, all_ranks: list[int], folder: Path) -> list[Row]:
    """A row for each strategy, `single` first."""
    runs = variants(workload, updates)
    key = {"workload": workload, "updates": updates}
    rows: list[Row] = []
    exact: list[float] = []
    for ranks in [1, *all_ranks]:
        lacks = LACKS.get((workload, ranks), set())
        strategies = [strategy for strategy in ON_RANKS[ranks] if strategy["parallelism"] not in lacks]
        results = gang(folder / str(ranks), workload, [{**r, **s} for s in strategies for r in runs], ranks)
        for index, strategy in enumerate(strategies):
            mine = results[3 * index : 3 * index + 3]
            exact = exact or mine[0]["losses"]
            largest, relative = weights_difference(folder / str(ranks) / str(3 * index + 2), folder / "1" / "2")
            words = [value if key == "parallelism" else f"{key}={value}" for key, value in strategy.items()]
            rows.append({**key, "ranks": ranks, "strategy": " ".join(words), "weights": largest, "norm": relative})
            rows[-1] |= {name: difference(r["losses"], exact) for name, r in zip(("fp32", "bf16"), mine, strict=False)}
            rows[-1]["loss"] = [round(mine[0]["losses"][i], 6) for i in (0, -1)] if mine[0]["losses"] else None
            rows[-1]["failure"] = next((r["failure"] for r in mine if r["failure"]), None)
    return rows


def broken(rows: list[Row]) -> list[str]:
    """What must hold and does not."""
    return [
        f"{row['workload']} {row['strategy']} on {row['ranks']}: {name} {row[name]:.1e} is above {bound:.0e}"
        for row in rows
        for name, bound in BOUNDS.items()
        if row.get(name, 0.0) > bound
    ]


def table(rows: list[Row]) -> str:
    """For a person."""
    lines = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = [row for row in rows if row["workload"] == workload]
        one = mine[0]
        lines.append(f"{workload}: {one['updates']} updates; loss {one['loss'][0]:.4f} to {one['loss'][1]:.4f}")
        lines.append(f"{'strategy':50} ranks  loss fp32  loss bf16  weights sgd  (norm)")
        for row in mine:
            figures = [f"{row[k]:.1e}" if k in row else "-" for k in ("fp32", "bf16", "weights", "norm")]
            a, b, c, d = figures
            lines.append(
                f"{row['strategy']:50} {row['ranks']:5d}  {a:>9}  {b:>9}  {c:>11}  {d:>6}  {row.get('failure') or ''}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default=list(WORKLOAD), choices=list(WORKLOAD), nargs="+")
    parser.add_argument("--ranks", default=[2, 4], type=int, nargs="+")
    for flag in ("quick", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    if chosen.table:
        rows = kept
    else:
        updates, ranks = (6, [2]) if chosen.quick else (20, chosen.ranks)
        rows = []
        for workload in chosen.workload:
            rows += measure(workload, updates, ranks, Path(tempfile.mkdtemp()))
        if not chosen.quick:
            fresh = {(row["workload"], row["ranks"], row["strategy"]) for row in rows}
            rows += [row for row in kept if (row["workload"], row["ranks"], row["strategy"]) not in fresh]
            rows.sort(key=lambda row: (row["workload"], row["ranks"]))
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table(rows))
    problems = broken(rows)
    print("\n".join(problems) or "every bound holds")
    if chosen.check and (problems or not rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
