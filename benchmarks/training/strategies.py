"""Does every parallelism strategy compute the same as `single`? Twenty updates on the same batches.

    python benchmarks/training/strategies.py [--again]             measure the missing rows (or all)
    python benchmarks/training/strategies.py --quick [--check]     six updates on 2 ranks
    python benchmarks/training/strategies.py --table [--check]     the stored rows

For each strategy on 2 and 4 gloo ranks, with the optimizer of the workload's trial 0, the largest
relative difference of the training loss:

    fp32    from `single` in fp32, at most 1e-5
    bf16    from `single` in fp32, at most 2e-2
    fp64    from `single` in fp64, at most 1e-12

and under plain SGD the largest absolute difference of a final weight, at most 1e-4, with the norm
of all differences divided by the norm of all weights.

`single accumulation=3` shows the effect of another order of summation on one rank. Training
amplifies rounding: at trial 0's learning rate of 0.01, the image model in fp32 differs by 8e-5 from
itself in fp64 after 20 updates, because a ReLU or a maximum falls to the other side. So its fp32
and bf16 curves use a tenth of that rate; fp64 uses all of it. The rate of plain SGD is low for the
same reason.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.training.forked import run_gang, warm
from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run
from workers.training import checkpoint, trainer
from workers.workloads import WORKLOADS

ROWS = store.RESULTS / "strategies.jsonl"
LIMITS = {"fp32": 1e-5, "bf16": 2e-2, "fp64": 1e-12, "weights": 1e-4}
WORKLOAD: dict[str, dict[str, Any]] = {
    "translation": {
        "width": 64,
        "num_layers": 2,
        "num_heads": 4,
        "batch_tokens": 512,
        "dropout": 0.0,
        "learning_rate": 1e-3,
        "warmup_updates": 10,
        "tied_embeddings": False,
        "attention_layout": "interleaved",
    },
    "image_classification": {
        "batch_size": 16,
        "learning_rate": 1e-3,
        "dropout": 0.0,
        "dense_dropout": 0.0,
    },
}
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
    """Settings of the four runs of each strategy: fp32, bf16, fp64 and plain SGD."""
    common = {**WORKLOAD[workload], "max_updates": updates, "evaluate_updates": 1, "max_epochs": 10}
    sgd = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": SGD_RATE[workload]}
    exact = {"precision": "fp64", "learning_rate": OWN_RATE[workload]}
    return [{**common, **variant} for variant in ({}, {"precision": "bf16"}, exact, sgd)]


def prepare(workload: str) -> None:
    """Import everything and read the data once, for all forked ranks."""
    warm()
    next(iter(WORKLOADS.get(workload)(WORKLOAD[workload], DATA[workload], {}).train_batches(0)))


def gang(
    folder: Path, workload: str, trials: list[dict[str, Any]], ranks: int
) -> list[dict[str, Any]]:
    """Train each trial in turn in one gang; the losses by update, or the failure, of each."""
    folder.mkdir()
    assignment = Assignment(
        "bench",
        0,
        1,
        {},
        None,
        str(folder),
        data=DATA[workload],
        seed=1,
        num_ranks=ranks,
        fixed={"workload": workload, "trials": trials},
    )
    outcome = run_gang(assignment, in_turn)
    if outcome.failure:
        raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


def in_turn(context: Context) -> None:
    """Do one rank's part of all trials."""
    results = []
    for index, params in enumerate(context.assignment.fixed["trials"]):
        reports: list[Report] = []
        attempt = replace(
            context.assignment, params=params, folder=f"{context.folder}/{index}", fixed={}
        )
        (context.folder / str(index)).mkdir(exist_ok=True)
        rendezvous = f"{context.rendezvous}-{index}" if context.world_size > 1 else ""
        inner = Context(
            attempt,
            reports.append,
            rank=context.rank,
            world_size=context.world_size,
            rendezvous=rendezvous,
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
    """An objective that trains a workload without any evaluation."""
    kind: Any = WORKLOADS.get(name)
    trainer.evaluate = lambda *given: {}  # type: ignore[assignment]

    class Quiet(kind):  # type: ignore[misc, valid-type]
        __module__ = kind.__module__  # the module beside it reads the data

        def evaluate(self, model: Any, device: Any) -> Mapping[str, float]:
            return {}

    return lambda c: Quiet(c.params, c.assignment.data, {}, seed=c.seed).run(c)


def difference(found: list[float], reference: list[float]) -> float:
    """The largest relative difference; infinite if a loss is missing."""
    if len(found) != len(reference):
        return float("inf")
    return max(abs(a / b - 1) for a, b in zip(found, reference, strict=True))


def weights_difference(found: Path, reference: Path) -> tuple[float, float]:
    """The largest absolute difference, and the norm of differences over the norm of weights."""
    a = checkpoint.load(found)
    b = checkpoint.load(reference)
    if a is None or b is None or a.model.keys() != b.model.keys():
        return float("inf"), float("inf")
    differences = [a.model[name].double() - tensor.double() for name, tensor in b.model.items()]
    largest = max(float(d.abs().max()) for d in differences)
    squares = sum(float(d.square().sum()) for d in differences)
    whole = sum(float(t.double().square().sum()) for t in b.model.values())
    return largest, math.sqrt(squares / whole)


def configurations(
    workload: str, all_ranks: list[int]
) -> Iterator[tuple[int, dict[str, Any], Row]]:
    """Ranks, parameters and the key columns of each row to measure."""
    for ranks in [1, *all_ranks]:
        for strategy in ON_RANKS[ranks]:
            words = " ".join(v if k == "parallelism" else f"{k}={v}" for k, v in strategy.items())
            if strategy["parallelism"] not in LACKS.get((workload, ranks), ()):
                yield ranks, strategy, {"workload": workload, "ranks": ranks, "strategy": words}


def measure(workload: str, updates: int, all_ranks: list[int], known: set[Any]) -> Iterator[Row]:
    """A row for each strategy whose key is not in `known`; `single` is trained in any case."""
    folder = Path(tempfile.mkdtemp())
    runs = variants(workload, updates)
    reference = gang(
        folder / "single", workload, [{**run, "parallelism": "single"} for run in runs], 1
    )
    losses = [one["losses"] for one in reference]
    references = {"fp32": losses[0], "bf16": losses[0], "fp64": losses[2]}
    for ranks, strategy, keys in configurations(workload, all_ranks):
        if key_of(keys) in known:
            continue
        row: Row = {**keys, "updates": updates}
        place = folder / f"{ranks} {row['strategy']}"
        mine = gang(place, workload, [{**run, **strategy} for run in runs], ranks)
        for (name, exact), one in zip(references.items(), mine, strict=False):
            row[name] = difference(one["losses"], exact)
        row["weights"], row["norm"] = weights_difference(place / "3", folder / "single" / "3")
        row["loss"] = [round(losses[0][index], 6) for index in (0, -1)]
        row["failure"] = next((one["failure"] for one in mine if one["failure"]), None)
        yield row


def key_of(row: Row) -> tuple[Any, ...]:
    """The key columns of a row."""
    return row["workload"], row["ranks"], row["strategy"]


def claims(rows: list[Row], workloads: Sequence[str], all_ranks: list[int]) -> list[Claim]:
    """Every configuration was measured without failure, and the worst row is within each limit."""
    asked = [key_of(keys) for name in workloads for *_, keys in configurations(name, all_ranks)]
    known = {key_of(row) for row in rows}
    missing = [" ".join(map(str, key)) for key in asked if key not in known]
    failed = [" ".join(map(str, key_of(row))) for row in rows if row.get("failure")]
    found = [complete("every strategy", missing)]
    if rows:
        found.append(Claim("no failure", not failed, ", ".join(failed) or "none"))
    for name, limit in LIMITS.items():
        worst = max((row for row in rows if name in row), key=lambda row: row[name], default=None)
        note = " ".join(map(str, key_of(worst))) if worst else ""
        value = worst[name] if worst else None
        found.append(at_most(f"largest difference of {name}", value, limit, note))
    return found


def table(rows: list[Row]) -> str:
    """A line for each row, by workload."""
    lines = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = [row for row in rows if row["workload"] == workload]
        first, last = mine[0]["loss"]
        lines.append(f"{workload}: {mine[0]['updates']} updates; loss {first:.4f} to {last:.4f}")
        lines.append(f"{'strategy':50} ranks  loss fp32  loss bf16  loss fp64  weights sgd  (norm)")
        for row in mine:
            keys = ("fp32", "bf16", "fp64", "weights", "norm")
            a, b, c, d, e = (f"{row[key]:.1e}" if key in row else "-" for key in keys)
            text = (
                f"{row['strategy']:50} {row['ranks']:5d}  {a:>9}  {b:>9}  {c:>9}  {d:>11}  {e:>6}"
            )
            lines.append(f"{text}  {row.get('failure') or ''}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Measure the missing rows, store them, and print the tables."""
    parser = benchmark_parser(__doc__, "six updates on 2 ranks")
    parser.add_argument("--workload", default=list(WORKLOAD), choices=list(WORKLOAD), nargs="+")
    parser.add_argument("--ranks", default=[2, 4], type=int, nargs="+")
    parser.add_argument("--again", action="store_true", help="measure stored rows, too")
    given = parser.parse_args()
    ranks = [2] if given.quick else given.ranks
    rows = [] if given.quick else store.read(ROWS)
    known = set() if given.again else {key_of(row) for row in rows}
    for workload in [] if given.table else given.workload:
        prepare(workload)
        for row in measure(workload, 6 if given.quick else 20, ranks, known):
            rows = [other for other in rows if key_of(other) != key_of(row)] + [row]
            rows.sort(key=lambda row: (row["workload"], row["ranks"]))
            if not given.quick:
                store.write(ROWS, rows)
    print(table(rows))
    return conclude(claims(rows, given.workload, ranks)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
