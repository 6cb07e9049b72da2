"""How long a simulated sweep takes under `bayes` + `curve`: at least 500 trials with 5,000 reports, on one thread.

    python -m benchmarks.stoppers.simulation [--tables digits ...] [--factor 1.6] [--trials 500] [--every 2]
    python -m benchmarks.stoppers.simulation --quick [--check]     one such simulation, kept nowhere
    python -m benchmarks.stoppers.simulation --table [--check]     the kept rows; --check: exit status 1 where one took longer

A learning-curve table of `benchmarks.stoppers.curves` with a budget of so many times the usual, or of so many trials; where only
every other report is made, there are half as many a trial. Printed: trials, reports and the seconds of the processor
and of the clock, for which 60 are allowed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import automl
from benchmarks.common import store
from benchmarks.common.bounds import at_most, conclude
from benchmarks.stoppers.curve_problems import NUM_WORKERS, TABLES, Table

ROWS = store.RESULTS / "simulation.jsonl"
KEYS = ("table", "trials", "reports", "seed")
TRIALS, REPORTS, SECONDS = 500, 5000, 60.0
QUICK_EVERY = 4  # makes somewhat more than the 5,000 reports


@dataclass(frozen=True)
class Sparse:
    """A table's replay with every so-manieth report."""

    table: Table
    every: int

    def __call__(self, params: Any) -> Iterator[tuple[float, dict[str, float]]]:
        """For `automl.simulate`."""
        rate = self.every * self.table.rate(params)
        for loss in self.table.curve(params)[self.every - 1 :: self.every]:
            yield rate, {"loss": float(loss)}


def measure(name: str, budget: dict[str, float], every: int, seed: int) -> dict[str, Any]:
    """One simulation; `budget` as `automl.simulate` takes it."""
    table = Table.load(name)
    cpu, wall = time.process_time(), time.perf_counter()
    options: dict[str, Any] = {
        "workers": NUM_WORKERS,
        "suggester": "bayes",
        "stopper": "curve",
        "seed": seed,
        **budget,
    }
    found = automl.simulate(Sparse(table, every), table.space, "minimize loss", **options)
    reports = sum(len(trial.reports) for trial in found.trials)
    took = {
        "cpu": round(time.process_time() - cpu, 1),
        "wall": round(time.perf_counter() - wall, 1),
    }
    return {
        "table": name,
        "every": every,
        "seed": seed,
        "trials": len(found.trials),
        "reports": reports,
        **took,
    }


def main() -> int:
    """One line a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--factor", type=float, default=1.6)
    parser.add_argument("--trials", type=int, help="in place of a budget of time")
    parser.add_argument("--every", type=int, default=1, help="so many steps a report")
    parser.add_argument("--seed", type=int, default=0)
    for flag in ("quick", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.quick:
        given.tables, given.trials, given.every = ["digits"], TRIALS, QUICK_EVERY
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
    return _check(rows) if given.check else 0


def _check(rows: list[store.Row]) -> int:
    """The longest of those of about the size for which the seconds are said."""
    sized = [
        row for row in rows if row["trials"] >= TRIALS and REPORTS <= row["reports"] <= 2 * REPORTS
    ]
    slowest = max((row["cpu"] for row in sized), default=None)
    return conclude(
        [at_most(f"seconds of {TRIALS} trials with {REPORTS} reports", slowest, SECONDS)]
    )


if __name__ == "__main__":
    sys.exit(main())
