"""Does a checkpoint of one strategy resume under any other? Every pair, on four gloo ranks.

    python benchmarks/training/checkpoints.py                      measure and store the rows
    python benchmarks/training/checkpoints.py --quick [--check]     three strategies
    python benchmarks/training/checkpoints.py --table [--check]     the stored rows

Each strategy trains the translation model for three updates with Adam. Each strategy then continues
each of these checkpoints for three more updates. The table shows the largest relative difference of
the training loss from an uninterrupted run of `single`; at most 1e-5 is allowed.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.training.forked import run_gang
from benchmarks.training.strategies import DATA, WORKLOAD, difference, prepare, train_quietly
from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run

ROWS = store.RESULTS / "checkpoints.jsonl"
NAMES = (
    "single",
    "ddp",
    "fsdp",
    "tensor",
    "pipeline",
    "embedding_server",
    "data_tensor",
    "data_pipeline",
)
QUICK = ("single", "fsdp", "data_pipeline")
RANKS = 4
SAVED_AT = 3
UPDATES = 6
LIMIT = 1e-5


def relay(context: Context) -> None:
    """Do one rank's part of all runs; rank 0 writes the losses of each resumed pair."""
    found = {"whole": train(context, "whole", "single", UPDATES)[SAVED_AT:]}
    for saver in context.assignment.fixed["savers"]:
        train(context, saver, saver, SAVED_AT)
        for resumer in context.assignment.fixed["resumers"]:
            pair = f"{saver}-{resumer}"
            if context.rank == 0:
                shutil.copytree(
                    context.folder / saver / "checkpoints", context.folder / pair / "checkpoints"
                )
            found[pair] = train(context, pair, resumer, UPDATES, resume=True)
    if context.rank == 0:
        (context.folder / "found.json").write_text(json.dumps(found))


def train(
    context: Context, place: str, strategy: str, updates: int, resume: bool = False
) -> list[float]:
    """The training loss of each update; empty on a rank that has nothing to do."""
    alone = strategy == "single"
    if alone and context.rank:
        return []
    params = {
        **WORKLOAD["translation"],
        "optimizer": "adam",
        "evaluate_updates": 1,
        "max_updates": updates,
    }
    params["parallelism"] = strategy
    folder = context.folder / place
    folder.mkdir(exist_ok=True)
    attempt = replace(
        context.assignment, params=params, folder=str(folder), resume=resume, fixed={}
    )
    reports: list[Report] = []
    size = 1 if alone else context.world_size
    inner = Context(
        attempt,
        reports.append,
        rank=context.rank,
        world_size=size,
        rendezvous="" if alone else f"{context.rendezvous}-{place}",
    )
    outcome = run(inner, train_quietly("translation"))
    if outcome.failure:
        raise RuntimeError(f"{place}: {outcome.message}\n{outcome.details.get('traceback')}")
    return [report.metrics["train_loss"] for report in reports if "train_loss" in report.metrics]


def measure(savers: Sequence[str], resumers: Sequence[str]) -> list[store.Row]:
    """A row for each strategy that saved: the difference under each that resumed."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"savers": list(savers), "resumers": list(resumers)}
        attempt = Assignment(
            "bench", 0, 1, {}, None, folder, DATA["translation"], fixed, seed=1, num_ranks=RANKS
        )
        prepare("translation")
        outcome = run_gang(attempt, relay)
        if outcome.failure:
            raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
        found = json.loads((Path(folder) / "found.json").read_text())
    rows = []
    for saver in savers:
        pairs = {to: difference(found[f"{saver}-{to}"], found["whole"]) for to in resumers}
        rows.append({"saver": saver, **pairs})
    return rows


def table(rows: list[store.Row]) -> str:
    """A line for each strategy that saved, a column for each that resumed."""
    names = [name for name in rows[0] if name != "saver"] if rows else []
    lines = [f"{'saved under':18}" + "".join(f"{name:>17}" for name in names)]
    for row in rows:
        lines.append(f"{row['saver']:18}" + "".join(f"{row[name]:17.1e}" for name in names))
    return "\n".join(lines)


def claims(rows: list[store.Row], names: Sequence[str]) -> list[Claim]:
    """Every pair of these strategies was measured, and none differs by more than the limit."""
    known = {(row["saver"], to): row[to] for row in rows for to in names if to in row}
    missing = [f"{a} to {b}" for a in names for b in names if (a, b) not in known]
    worst = max(known.values(), default=None)
    name = f"largest difference of {len(known)} pairs"
    return [complete("every pair of strategies", missing), at_most(name, worst, LIMIT)]


def main() -> int:
    """Measure, store the rows and print the table."""
    parser = benchmark_parser(__doc__, "three strategies")
    given = parser.parse_args()
    rows = [] if given.quick else store.read(ROWS)
    if given.quick:
        rows = measure(QUICK, QUICK)
    elif not given.table:
        rows = measure(NAMES, NAMES)
        store.write(ROWS, rows)
    print(table(rows))
    return conclude(claims(rows, QUICK if given.quick else NAMES)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
