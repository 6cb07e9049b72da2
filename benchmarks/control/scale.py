"""The cost of the controller: up to 100,000 simulated trials on 10,000 workers.

    python benchmarks/control/scale.py [--suggester NAME] [--trials N ...] [--store STORE]
    python benchmarks/control/scale.py --quick [--check]     1,000 and 10,000 trials
    python benchmarks/control/scale.py --table [--check]     the stored rows

Each size runs in its own process. The rows have the CPU time of a trial (almost all of it is
the controller, because a replay is a sum) and the peak memory. `--store sqlite` writes to a file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import automl
from benchmarks.common import store as rows_of
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import benchmark_parser
from search_spaces import Choice, Float, Int, Space

SPACE: Final = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("width", 16, 4096, log=True),
    Choice("optimizer", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
    Float("dropout", 0.0, 0.5),
)
NUM_REPORTS: Final = 3
ROWS: Final = rows_of.RESULTS / "scale.jsonl"
MAX_MS: Final = {"random": 5.0, "bayes": 50.0}  # of a trial, ledger in memory
MAX_GIB: Final = 4.0
KEYS: Final = ("trials", "workers", "suggester", "stopper", "store")
QUICK: Final = (1000, 10_000)  # trials


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Three reports; their times depend on the parameters."""
    for step in range(1, NUM_REPORTS + 1):
        yield 10.0 + params["width"] / 100 + params["dropout"], {"loss": params["lr"] + 1.0 / step}


def one(trials: int, workers: int, suggester: str, stopper: str, store: str) -> dict[str, Any]:
    """Run a simulation in this process."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        clock = time.perf_counter()
        result = automl.simulate(
            replay,
            SPACE,
            "minimize loss",
            workers=workers,
            trials=trials,
            suggester=suggester,
            stopper=stopper,
            store=None if store == "memory" else folder,
            seed=0,
        )
        took = time.process_time() - began
        wall = time.perf_counter() - clock
    if len(result.trials) != trials:  # a signal ends a simulation as it ends a sweep
        state = result.snapshot.state
        raise SystemExit(f"only {len(result.trials)} of {trials} trials: the sweep is {state}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "trials": trials,
        "workers": workers,
        "suggester": suggester,
        "stopper": stopper,
        "store": store,
        "cpu": round(took, 1),
        "wall": round(wall, 1),
        "ms_a_trial": round(1000 * took / trials, 3),
        "GiB": round(peak, 2),
    }


def main() -> int:
    """Measure every size."""
    parser = benchmark_parser(__doc__, "1,000 and 10,000 trials")
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000, 30_000, 100_000])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--suggester", default="random")
    parser.add_argument("--stopper", default="none")
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        row = one(given.trials[0], given.workers, given.suggester, given.stopper, given.store)
        print(json.dumps(row))
        return 0
    rows = list(rows_of.load(ROWS, *KEYS).values()) if given.table else _measure(given)
    if given.table:
        print("\n".join(map(json.dumps, rows)))
    suggesters = list(MAX_MS) if given.table else [given.suggester]
    return conclude(claims(rows, suggesters)) if given.check else 0


def _measure(given: argparse.Namespace) -> list[rows_of.Row]:
    """Run every size in its own process."""
    rows = []
    for trials in QUICK if given.quick else given.trials:
        options = [
            f"--{key}={getattr(given, key)}" for key in ("workers", "suggester", "stopper", "store")
        ]
        command = [sys.executable, __file__, "--one", f"--trials={trials}", *options]
        rows.append(json.loads(subprocess.check_output(command).splitlines()[-1]))
        if not given.quick:
            rows_of.append(ROWS, rows[-1])
        print(json.dumps(rows[-1]), flush=True)
    return rows


def claims(rows: list[rows_of.Row], suggesters: Sequence[str]) -> list[Claim]:
    """Limits of these suggesters with a ledger in memory; a database has no limits."""
    found = []
    for suggester in suggesters:
        mine = [row for row in rows if (row["suggester"], row["store"]) == (suggester, "memory")]
        slowest = max((row["ms_a_trial"] for row in mine), default=None)
        largest = max((row["GiB"] for row in mine), default=None)
        limit = MAX_MS.get(suggester)
        found.append(at_most(f"milliseconds of a trial with {suggester}", slowest, limit))
        found.append(at_most(f"GiB with {suggester}", largest, MAX_GIB))
    return found


if __name__ == "__main__":
    sys.exit(main())
