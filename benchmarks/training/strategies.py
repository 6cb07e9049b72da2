"""Does every parallelism strategy compute the function of `single`? Twenty updates of each on the same global batches.

    python benchmarks/training/strategies.py [--again]        measure what is not kept yet (or all), print the tables
    python benchmarks/training/strategies.py --quick [--check]     six updates on 2 ranks, kept nowhere
    python benchmarks/training/strategies.py --table [--check]     the kept rows; --check: exit status 1 where a bound is broken

For each strategy on 2 and where it applies 4 gloo ranks: the largest relative difference of the training loss from
`single` in fp32 (at most 1e-5), that of bf16 from `single` in fp32 (at most 2e-2), that of fp64 from `single` in fp64
(at most 1e-12), all with the optimizer of the workload's trial 0, and under plain SGD the largest absolute difference
of a final weight (at most 1e-4), with the norm of all differences over the norm of all weights.

`single accumulation=3` shows what another order of summation does on one rank. Training amplifies rounding: the image
model, which is that of trial 0, at trial 0's rate of 0.01 is in fp32 8e-5 away from itself in fp64 after 20 updates,
and 1e-4 away from itself with accumulation=3, because a ReLU or a maximum here and there falls to the other side. So
its fp32 and bf16 curves are at a tenth of that rate; in fp64 the rate is trial 0's. The rate of plain SGD is low, too:
at 0.02 the weights of four of the sixteen rows were 5e-4 to 7e-4 apart, those of `single accumulation=3` among them,
and those of the others 1e-8 to 9e-6.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forked import run_gang, warm

from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run
from workers.training import checkpoint
from workers.training.evaluation import Evaluator
from workers.workloads import WORKLOADS

RESULTS = Path(__file__).parents[1] / "results" / "strategies.jsonl"
BOUNDS = {"fp32": 1e-5, "bf16": 2e-2, "fp64": 1e-12, "weights": 1e-4}
WORKLOAD: dict[str, dict[str, Any]] = {
    "translation": {
        "width": 64, "num_layers": 2, "num_heads": 4, "batch_tokens": 512, "dropout": 0.0, "learning_rate": 1e-3,
        "warmup_updates": 10, "tied_embeddings": False, "attention_layout": "interleaved",
    },
    "image_classification": {
        "batch_size": 16, "learning_rate": 1e-3, "dropout": 0.0, "dense_dropout": 0.0, "optimized_metric": None,
        "patience": None, "plateau_evaluations": None, "average_best": 0,
    },
}  # fmt: skip
OWN_RATE = {"translation": 1e-3, "image_classification": 0.01}
DATA: dict[str, dict[str, Any]] = {
    "translation": {"name": "builtin"},
    "image_classification": {"train": 400, "test": 100},
}
SGD_RATE = {"translation": 0.1, "image_classification": 0.002}
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
        {"parallelism": "tensor", "sequence_parallel": True},
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


def applies(workload: str, ranks: int, strategy: Mapping[str, Any]) -> bool:
    """Whether the workload can be trained so, and it differs from what another row is about."""
    if strategy["parallelism"] in LACKS.get((workload, ranks), ()):
        return False
    return (
        workload == "translation" or "sequence_parallel" not in strategy
    )  # the image model has no norms


def variants(workload: str, updates: int) -> list[dict[str, Any]]:
    """Settings of the four runs of each strategy: fp32, bf16, fp64, and plain SGD."""
    common = {**WORKLOAD[workload], "max_updates": updates, "evaluate_updates": 1, "max_epochs": 10}
    sgd = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": SGD_RATE[workload]}
    exact = {"precision": "fp64", "learning_rate": OWN_RATE[workload]}
    return [{**common, **variant} for variant in ({}, {"precision": "bf16"}, exact, sgd)]


def prepare(workload: str) -> None:
    """Import everything and read the data, once for all processes that are forked."""
    warm()
    next(iter(WORKLOADS.get(workload)(WORKLOAD[workload], DATA[workload], {}).train_batches(0)))


def gang(
    folder: Path, workload: str, trials: list[dict[str, Any]], ranks: int
) -> list[dict[str, Any]]:
    """Train each in turn in one gang; losses by update, or the failure, and the folder of each."""
    folder.mkdir()
    assignment = Assignment(
        "bench", 0, 1, {}, None, str(folder), data=DATA[workload], seed=1, num_ranks=ranks,
        fixed={"workload": workload, "trials": trials},
    )  # fmt: skip
    outcome = run_gang(assignment, in_turn)
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


def in_turn(context: Context) -> None:
    """One rank's part in all trials."""
    results = []
    for index, params in enumerate(context.assignment.fixed["trials"]):
        reports: list[Report] = []
        attempt = replace(
            context.assignment, params=params, folder=f"{context.folder}/{index}", fixed={}
        )
        (context.folder / str(index)).mkdir(exist_ok=True)
        meeting = f"{context.rendezvous}-{index}" if context.world_size > 1 else ""
        inner = Context(
            attempt,
            reports.append,
            rank=context.rank,
            world_size=context.world_size,
            rendezvous=meeting,
        )
        outcome = run(inner, train_quietly(context.assignment.fixed["workload"]))
        losses = [
            report.metrics["train_loss"] for report in reports if "train_loss" in report.metrics
        ]
        results.append({"losses": losses, "failure": outcome.message if outcome.failure else None})
        if outcome.failure:
            print(params, outcome.failure, outcome.details.get("traceback", ""), flush=True)
    if context.rank == 0:
        (context.folder / "results.json").write_text(json.dumps(results))


def train_quietly(name: str) -> Any:
    """An objective that trains a workload and evaluates nothing, nor collects the model to do so."""
    kind: Any = WORKLOADS.get(name)
    Evaluator.evaluate = lambda self: {}  # type: ignore[method-assign]

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
    return largest, math.sqrt(
        squares / sum(float(t.double().square().sum()) for t in b.model.values())
    )


def measure(workload: str, updates: int, all_ranks: list[int], known: set[Any]) -> Iterator[Row]:
    """A row for each strategy whose key is not known yet; `single` is trained in any case."""
    folder = Path(tempfile.mkdtemp())
    runs = variants(workload, updates)
    reference = gang(
        folder / "single", workload, [{**run, "parallelism": "single"} for run in runs], 1
    )
    losses = [one["losses"] for one in reference]
    references = {"fp32": losses[0], "bf16": losses[0], "fp64": losses[2]}
    for ranks in [1, *all_ranks]:
        for strategy in ON_RANKS[ranks]:
            words = " ".join(v if k == "parallelism" else f"{k}={v}" for k, v in strategy.items())
            row: Row = {"workload": workload, "updates": updates, "ranks": ranks, "strategy": words}
            if not applies(workload, ranks, strategy) or key_of(row) in known:
                continue
            place = folder / f"{ranks} {words}"
            mine = gang(place, workload, [{**run, **strategy} for run in runs], ranks)
            for (name, exact), one in zip(references.items(), mine, strict=False):
                row[name] = difference(one["losses"], exact)
            row["weights"], row["norm"] = weights_difference(place / "3", folder / "single" / "3")
            row["loss"] = [round(losses[0][index], 6) for index in (0, -1)]
            row["failure"] = next((one["failure"] for one in mine if one["failure"]), None)
            yield row


def key_of(row: Row) -> tuple[Any, ...]:
    """What a row is about."""
    return row["workload"], row["ranks"], row["strategy"]


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
        lines.append(
            f"{workload}: {one['updates']} updates; loss {one['loss'][0]:.4f} to {one['loss'][1]:.4f}"
        )
        lines.append(f"{'strategy':50} ranks  loss fp32  loss bf16  loss fp64  weights sgd  (norm)")
        for row in mine:
            keys = ("fp32", "bf16", "fp64", "weights", "norm")
            a, b, c, d, e = (f"{row[key]:.1e}" if key in row else "-" for key in keys)
            text = (
                f"{row['strategy']:50} {row['ranks']:5d}  {a:>9}  {b:>9}  {c:>9}  {d:>11}  {e:>6}"
            )
            lines.append(f"{text}  {row.get('failure') or ''}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default=list(WORKLOAD), choices=list(WORKLOAD), nargs="+")
    parser.add_argument("--ranks", default=[2, 4], type=int, nargs="+")
    for flag in ("quick", "table", "check", "again"):
        parser.add_argument(f"--{flag}", action="store_true")
    chosen = parser.parse_args()
    kept = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    if chosen.quick:
        rows = []
        for workload in chosen.workload:
            prepare(workload)
            rows += measure(workload, 6, [2], set())
    else:
        rows = kept
        known = set() if chosen.again else {key_of(row) for row in kept}
        for workload in [] if chosen.table else chosen.workload:
            prepare(workload)
            for row in measure(workload, 20, chosen.ranks, known):
                rows = [other for other in rows if key_of(other) != key_of(row)] + [row]
                rows.sort(key=lambda row: (row["workload"], row["ranks"]))
                RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(table(rows))
    problems = broken(rows)
    print("\n".join(problems) or "every bound holds")
    if chosen.check and (problems or not rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
