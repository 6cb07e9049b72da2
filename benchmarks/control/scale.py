"""What the controller itself costs: 100,000 simulated trials on 10,000 workers.

    python -m benchmarks.control.scale [--suggester random] [--trials 1000 10000 30000 100000] [--workers 10000] [--store ...]

    python -m benchmarks.control.scale --quick [--check]     1,000 and 10,000 trials of `random`, kept nowhere
    python -m benchmarks.control.scale --table [--check]     the kept rows; --check: exit status 1 where a bound is broken

Each size runs in a process of its own; rows are kept. Printed: processor time a trial (replaying is a sum, so nearly
all is the controller's), the peak memory, and the slope of time against trials in logarithms: above 1 means
superlinear. `--store sqlite` writes to a file, `--store postgresql` to a server of its own (whose own processor time is
not counted).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import automl
from benchmarks.common import store as rows_of
from benchmarks.common.bounds import at_most, conclude
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
MOST_MS: Final = {"random": 5.0, "bayes": 50.0}  # a trial, in memory
MOST_GIB: Final = 4.0
MOST_SLOPE: Final = 1.0
KEYS: Final = ("trials", "workers", "suggester", "stopper", "store")
QUICK: Final = (1000, 10_000)  # trials


def replay(params: Any) -> Iterator[tuple[float, dict[str, float]]]:
    """Three reports at times of the trial's own."""
    for step in range(1, NUM_REPORTS + 1):
        yield 10.0 + params["width"] / 100 + params["dropout"], {"loss": params["lr"] + 1.0 / step}


@contextlib.contextmanager
def place(store: str) -> Iterator[str | None]:
    """Where the ledger is."""
    if store == "postgresql":
        from tests.automl.postgres import server

        with server() as running:
            yield running.database()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield None if store == "memory" else folder


def one(trials: int, workers: int, suggester: str, stopper: str, store: str) -> dict[str, Any]:
    """A simulation in this process."""
    with place(store) as where:
        began, clock = time.process_time(), time.perf_counter()
        options: dict[str, Any] = {
            "suggester": suggester,
            "stopper": stopper,
            "store": where,
            "seed": 0,
        }
        result = automl.simulate(
            replay, SPACE, "minimize loss", workers=workers, trials=trials, **options
        )
        took, wall = time.process_time() - began, time.perf_counter() - clock
    if len(result.trials) != trials:  # a signal ends a simulation as it ends a sweep
        raise SystemExit(
            f"{trials} trials: {result.snapshot.state} after {len(result.trials)}; nothing was measured"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {
        "trials": trials,
        "workers": workers,
        "suggester": suggester,
        "stopper": stopper,
        "store": store,
    }
    each = 1000 * took / trials
    return {
        **row,
        "cpu": round(took, 1),
        "wall": round(wall, 1),
        "ms_a_trial": round(each, 3),
        "GiB": round(peak, 2),
    }


def print_slopes(rows: list[dict[str, Any]], workers: int) -> None:
    """Of all rows; and of what comes after the first trial of every worker, which all begin together at once."""
    sizes, seconds = _sizes(rows)
    print(f"slope of log seconds over log trials: {_slope(sizes, seconds):.2f}")
    later = sizes > workers
    if workers in sizes and later.sum() > 1:
        first = float(seconds[sizes == workers][0])
        print(
            f"after the first {workers} trials: {_slope(sizes[later] - workers, seconds[later] - first):.2f}"
        )


def _sizes(rows: list[rows_of.Row]) -> tuple[Any, Any]:
    return np.array([row["trials"] for row in rows], dtype=float), np.array(
        [row["cpu"] for row in rows], dtype=float
    )


def _slope(sizes: Any, seconds: Any) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> int:
    """Every size in a process of its own; then the slope."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000, 30_000, 100_000])
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--suggester", default="random")
    parser.add_argument("--stopper", default="none")
    parser.add_argument("--store", choices=["memory", "sqlite", "postgresql"], default="memory")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    for flag in ("quick", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args()
    if arguments.one:
        row = one(
            arguments.trials[0],
            arguments.workers,
            arguments.suggester,
            arguments.stopper,
            arguments.store,
        )
        print(json.dumps(row))
        return 0
    rows = list(rows_of.load(ROWS, *KEYS).values()) if arguments.table else _measured(arguments)
    if arguments.table:
        print("\n".join(map(json.dumps, rows)))
    return _check(rows, whole=arguments.table) if arguments.check else 0


def _measured(given: argparse.Namespace) -> list[rows_of.Row]:
    """Every size in a process of its own."""
    rows = []
    for trials in QUICK if given.quick else given.trials:
        options = [
            f"--{key}={getattr(given, key)}" for key in ("workers", "suggester", "stopper", "store")
        ]
        command = [
            sys.executable,
            "-m",
            "benchmarks.control.scale",
            "--one",
            f"--trials={trials}",
            *options,
        ]
        rows.append(json.loads(subprocess.check_output(command).splitlines()[-1]))
        if not given.quick:
            rows_of.append(ROWS, rows[-1])
        print(json.dumps(rows[-1]), flush=True)
    if len(rows) > 1:
        print_slopes(rows, given.workers)
    return rows


def _check(rows: list[rows_of.Row], *, whole: bool) -> int:
    """Nothing must hold of a database, whose rows stand beside; `whole` where nothing may be missing."""
    found = []
    for suggester, most in MOST_MS.items():
        mine = [row for row in rows if (row["suggester"], row["store"]) == (suggester, "memory")]
        if mine or whole:
            slowest = max((row["ms_a_trial"] for row in mine), default=None)
            found.append(at_most(f"milliseconds a trial with {suggester}", slowest, most))
            found.append(
                at_most(
                    f"GiB with {suggester}",
                    max((row["GiB"] for row in mine), default=None),
                    MOST_GIB,
                )
            )
    sized = [row for row in rows if (row["suggester"], row["store"]) == ("random", "memory")]
    slope = _slope(*_sizes(sized)) if len(sized) > 1 else None
    return conclude(
        [*found, at_most("slope of log seconds over log trials with random", slope, MOST_SLOPE)]
    )


if __name__ == "__main__":
    sys.exit(main())
