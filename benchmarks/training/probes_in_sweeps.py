"""Does a sweep of `configs/nmt.yaml` end better, or sooner, with probes of speed than without?

    python benchmarks/training/probes_in_sweeps.py [--seeds N] [--first SEED]   measure
    python benchmarks/training/probes_in_sweeps.py --quick [--check]    one seed, of one minute
    python benchmarks/training/probes_in_sweeps.py --table [--check]    the stored rows

With and without take turns to be first. `--together` runs both at the same time: half of the
minutes, and each has half of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from statistics import mean, stdev
from typing import Any

from automl.ledger import Ledger
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser

ROWS = store.RESULTS / "probes_in_sweeps.jsonl"
ARMS = ("auto", "none")
SEEDS = 10
SOONER = 0.8  # of the seconds of the sweep without probes
WHOLE = ("budget.time=8m", "budget.trials=1000")
QUICK = (
    "budget.time=1m",
    "budget.trials=1000",
    "goals=maximize bleu within 4s",
    "fixed.evaluate_seconds=2",
)


def start(folder: str, probes: str, seed: int, options: tuple[str, ...]) -> subprocess.Popen[str]:
    """Begin a sweep, whose store is in `folder`."""
    given = (*options, f"probes={probes}", f"seed={seed}")
    line = ("-m", "automl", "sweep", "configs/nmt.yaml", *given, "--store", f"{folder}/{probes}")
    return subprocess.Popen(
        [sys.executable, *line, "--dispatcher", "local", "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(sweep: subprocess.Popen[str]) -> None:
    """Wait for a sweep, which must not fail."""
    _, said = sweep.communicate()
    if sweep.returncode:
        raise SystemExit(said)


def outcome(folder: str, probes: str) -> dict[str, Any]:
    """What a sweep has found: (seconds since its first trial, BLEU), and what probes took."""
    with closing(Ledger.open(f"{folder}/{probes}")) as ledger:
        snapshot = ledger.snapshot("nmt")
    tried = [t for t in snapshot.trials if t.started is not None]
    first = min(t.started for t in tried if t.started is not None)
    bleu = [(t.ended - first, t.metrics["bleu"]) for t in tried if t.ended and "bleu" in t.metrics]
    return {
        "bleu": sorted(bleu),
        "trials": len(tried),
        "probes": len(snapshot.probes),
        "probe_seconds": sum(probe.seconds for probe in snapshot.probes),
    }


def measure(seed: int, options: tuple[str, ...], together: bool) -> store.Row:
    """The row of a seed: both sweeps."""
    order = ARMS if seed % 2 else ARMS[::-1]
    with tempfile.TemporaryDirectory() as folder:
        if together:
            for sweep in [start(folder, arm, seed, options) for arm in order]:
                finish(sweep)
        else:
            for arm in order:
                finish(start(folder, arm, seed, options))
        return {
            "seed": seed,
            "together": together,
            **{arm: outcome(folder, arm) for arm in ARMS},
        }


def best(found: dict[str, Any]) -> float:
    """The best BLEU of a sweep."""
    return max(bleu for _, bleu in found["bleu"])


def ratio(row: store.Row) -> float | None:
    """Seconds until the sweep with probes has the final BLEU of the other, beside all of those.

    None if it never has it.
    """
    wanted, other = best(row["none"]), row["none"]["bleu"]
    reached = [seconds for seconds, bleu in row["auto"]["bleu"] if bleu >= wanted]
    return reached[0] / max(seconds for seconds, _ in other) if reached else None


def table(rows: list[store.Row]) -> str:
    """A line for each seed."""
    lines = [f"{'seed':4}{'with':>8}{'without':>9}{'its time':>10}{'probes':>8}{'seconds':>9}"]
    for row in rows:
        share = ratio(row)
        lines.append(
            f"{row['seed']:4}{best(row['auto']):8.2f}{best(row['none']):9.2f}"
            f"{'never' if share is None else f'{share:.2f}':>10}"
            f"{row['auto']['probes']:8}{row['auto']['probe_seconds']:8.1f}s"
        )
    return "\n".join(lines)


def claims(rows: list[store.Row], seeds: int) -> list[Claim]:
    """No worse beyond one standard error, and sooner at the other's final BLEU."""
    gains = [best(row["auto"]) - best(row["none"]) for row in rows]
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    shares = [1.0 if (share := ratio(row)) is None else share for row in rows]
    return [
        complete("every seed", sorted({*range(seeds)}.difference(row["seed"] for row in rows))),
        at_least("BLEU more than without", mean(gains) if gains else None, -error),
        at_most("time to the other's BLEU", mean(shares) if shares else None, SOONER),
    ]


def main() -> int:
    """Measure, store the rows and print the table."""
    parser = benchmark_parser(__doc__, "one seed, of one minute")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--together", action="store_true", help="both sweeps at the same time")
    given = parser.parse_args()
    if given.quick:
        rows = [measure(0, QUICK, given.together)]
    elif not given.table:
        for seed in range(given.first, given.first + given.seeds):
            store.append(ROWS, measure(seed, WHOLE, given.together))
    if not given.quick:
        rows = list(store.load(ROWS, "seed").values())
    print(table(rows))
    return conclude(claims(rows, 1 if given.quick else SEEDS)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
