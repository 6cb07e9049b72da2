"""Does a checkpoint saved under any strategy resume under any other? Every pair of strategies, on four gloo ranks.

    python benchmarks/training/checkpoints.py [--savers NAME ...]   measure, keep the rows, print the table
    python benchmarks/training/checkpoints.py --quick [--check]     three strategies, kept nowhere
    python benchmarks/training/checkpoints.py --table [--check]     the kept rows

Each strategy trains the translation model for three updates with Adam; each of these checkpoints is then trained on
for three more under each strategy. Printed is the largest relative difference of the training loss from a run of
`single` that nobody interrupted; --check: exit status 1 where one is above 1e-5.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from forked import run_gang
from strategies import DATA, WORKLOAD, prepare, train_quietly

from workers.context import Context
from workers.protocol import Assignment, Report
from workers.run import run

RESULTS = Path(__file__).parents[1] / "results" / "checkpoints.jsonl"
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
Row = dict[str, Any]
RANKS, SAVED_AT, UPDATES, BOUND = 4, 3, 6, 1e-5


def relay(context: Context) -> None:
    """One rank's part in all runs; rank 0 writes the losses after the resumption of each pair."""
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
    """Training losses by update; none on ranks that have nothing to do."""
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
    meeting = "" if alone else f"{context.rendezvous}-{place}"
    inner = Context(attempt, reports.append, rank=context.rank, world_size=size, rendezvous=meeting)
    outcome = run(inner, train_quietly("translation"))
    if outcome.failure:
        raise RuntimeError(f"{place}: {outcome.message}\n{outcome.details.get('traceback')}")
    return [report.metrics["train_loss"] for report in reports if "train_loss" in report.metrics]


def difference(found: list[float], exact: list[float]) -> float:
    """Largest relative difference; infinite where a loss is missing."""
    if len(found) != len(exact):
        return float("inf")
    return max(abs(a / b - 1) for a, b in zip(found, exact, strict=True))


def measure(savers: Sequence[str], resumers: Sequence[str]) -> list[Row]:
    """A row for each strategy that saved, with the difference under each that resumed."""
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
    return [
        {
            "saver": saver,
            **{
                resumer: difference(found[f"{saver}-{resumer}"], found["whole"])
                for resumer in resumers
            },
        }
        for saver in savers
    ]


def table(rows: list[Row]) -> tuple[str, float]:
    """Rows are where it was saved, columns where it resumed; and the largest difference."""
    names = [name for name in rows[0] if name != "saver"] if rows else []
    lines = [f"{'saved under':18}" + "".join(f"{name:>17}" for name in names)]
    lines += [
        f"{row['saver']:18}" + "".join(f"{row[name]:17.1e}" for name in names) for row in rows
    ]
    worst = max((row[name] for row in rows for name in names), default=math.inf)
    count = len(rows) * len(names)
    return "\n".join(
        [*lines, f"{count} pairs, largest difference {worst:.1e}, {BOUND:.0e} is allowed"]
    ), worst


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--savers", nargs="+", default=list(NAMES), choices=NAMES)
    for flag in ("quick", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    chosen = parser.parse_args()
    rows: list[Row] = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    if chosen.quick:
        rows = measure(QUICK, QUICK)
    elif not chosen.table:
        fresh = {row["saver"]: row for row in [*rows, *measure(chosen.savers, NAMES)]}
        rows = [fresh[name] for name in NAMES if name in fresh]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text, worst = table(rows)
    print(text)
    if chosen.check and worst > BOUND:
        sys.exit(1)


if __name__ == "__main__":
    main()
