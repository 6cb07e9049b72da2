"""CPU seconds of a simulated sweep with `bayes` and `curve`, on one thread.

    python benchmarks/stoppers/simulation.py [--tables NAME ...] [--factor 1.6] [--trials 500]
    python benchmarks/stoppers/simulation.py --quick [--check]     one sweep of 500 trials
    python benchmarks/stoppers/simulation.py --table [--check]     the stored rows

The trials replay a table of learning curves (`curve_problems.py`). `--factor` multiplies the usual
budget, `--trials` replaces it, and `--every 2` reports every second step only. A sweep of 500
trials with 5,000 reports may take 60 CPU seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import automl
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.stoppers.curve_problems import NUM_WORKERS, TABLES, Table

ROWS = store.RESULTS / "simulation.jsonl"
KEYS = ("table", "trials", "reports", "seed")
TRIALS = 500
REPORTS = 5000
SECONDS = 60.0
QUICK_EVERY = 4  # a little more than 5,000 reports


@dataclass(frozen=True)
class Sparse:
    """Replays a table with every `every`-th report."""

    table: Table
    every: int

    def __call__(self, params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        """For `automl.simulate`."""
        rate = self.every * self.table.rate(params)
        for loss in self.table.curve(params)[self.every - 1 :: self.every]:
            yield rate, {"loss": float(loss)}


def measure(name: str, budget: dict[str, float], every: int, seed: int) -> dict[str, Any]:
    """Run one simulation; `budget` holds options of `automl.simulate`."""
    table = Table.load(name)
    cpu = time.process_time()
    wall = time.perf_counter()
    options: dict[str, Any] = {"suggester": "bayes", "stopper": "curve", "seed": seed, **budget}
    found = automl.simulate(
        Sparse(table, every), table.space, "minimize loss", workers=NUM_WORKERS, **options
    )
    reports = sum(len(trial.reports) for trial in found.trials)
    return {
        "table": name,
        "every": every,
        "seed": seed,
        "trials": len(found.trials),
        "reports": reports,
        "cpu": round(time.process_time() - cpu, 1),
        "wall": round(time.perf_counter() - wall, 1),
    }


def main() -> int:
    """One line for each table."""
    parser = benchmark_parser(__doc__, "one sweep of 500 trials")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--factor", type=float, default=1.6)
    parser.add_argument(
        "--trials", type=int, help="a number of trials in place of a budget of time"
    )
    parser.add_argument("--every", type=int, default=1, help="the number of steps of a report")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.quick:
        given.tables = ["digits"]
        given.trials = TRIALS
        given.every = QUICK_EVERY
    rows = list(store.load(ROWS, *KEYS).values()) if given.table else []
    for name in () if given.table else given.tables:
        budget = (
            {"trials": given.trials}
            if given.trials
            else {"seconds": given.factor * Table.load(name).seconds}
        )
        rows.append(measure(name, budget, given.every, given.seed))
        if not given.quick:
            store.append(ROWS, rows[-1])
        print(rows[-1], flush=True)
    if given.table:
        print("\n".join(map(str, rows)))
    return conclude(claims(rows)) if given.check else 0


def claims(rows: list[store.Row]) -> list[Claim]:
    """The limit of the slowest sweep of about the size that the limit is for."""
    sized = [
        row for row in rows if row["trials"] >= TRIALS and REPORTS <= row["reports"] <= 2 * REPORTS
    ]
    slowest = max((row["cpu"] for row in sized), default=None)
    return [at_most(f"seconds of {TRIALS} trials with {REPORTS} reports", slowest, SECONDS)]


if __name__ == "__main__":
    sys.exit(main())
