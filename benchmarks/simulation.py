"""How long a simulated sweep takes under `bayes` + `curve`: at least 500 trials with 5,000 reports, on one thread.

    python -m benchmarks.simulation [--tables digits ...] [--factor 1.6]

A learning-curve table of `benchmarks.curves` with a budget of so many times the usual. Printed: trials, reports and the
seconds of the processor and of the clock, for which 60 are allowed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import automl
from benchmarks import store
from benchmarks.curve_problems import NUM_WORKERS, TABLES, Table

ROWS = store.RESULTS / "simulation.jsonl"


def measure(name: str, factor: float, seed: int) -> dict[str, Any]:
    """One simulation."""
    table = Table.load(name)
    cpu, wall = time.process_time(), time.perf_counter()
    options: dict[str, Any] = {"workers": NUM_WORKERS, "seconds": factor * table.seconds, "seed": seed}
    found = automl.simulate(table.replay, table.space, "minimize loss", suggester="bayes", stopper="curve", **options)
    reports = sum(len(trial.reports) for trial in found.trials)
    took = {"cpu": round(time.process_time() - cpu, 1), "wall": round(time.perf_counter() - wall, 1)}
    return {"table": name, "factor": factor, "seed": seed, "trials": len(found.trials), "reports": reports, **took}


def main() -> None:
    """One line a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--factor", type=float, default=1.6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.tables:
        row = measure(name, given.factor, given.seed)
        store.append(ROWS, row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
