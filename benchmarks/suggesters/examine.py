"""The exam: our suggester against its peers on problems on which nothing is developed.

    python benchmarks/suggesters/examine.py --why "left out the trend"   measure the missing rows
    python benchmarks/suggesters/examine.py --suggesters tpe,smac       of peers only
    python benchmarks/suggesters/examine.py --table [--check]           the stored rows

The exercise (`suggesters.py`) is for development. The exam is run when something is decided, and
never to tune: each measurement of ours is kept with its reason in results/exam_history.jsonl.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import date
from typing import Final

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, conclude
from benchmarks.common.options import parser
from benchmarks.common.store import Row
from benchmarks.suggesters import problems, report
from benchmarks.suggesters.aggregate import KINDS, mean, ranks, select
from benchmarks.suggesters.claims import against_peers, coverage
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.loop import run
from benchmarks.suggesters.scoring import scales
from benchmarks.suggesters.suggesters import one_thread

ROWS: Final = store.RESULTS / "exam.jsonl"
HISTORY: Final = store.RESULTS / "exam_history.jsonl"
TRIALS: Final = 50
# Seeds of each contestant; those that take minutes a run have fewer.
SEEDS: Final = {
    "bayes": 20,
    "tpe": 5,
    "smac": 5,
    "random": 5,
    "sobol": 5,
    "optuna-gp": 5,
    "ax": 3,
    "hebo": 2,
}
MEAN_RANK: Final = 1.5
FAILED: Final = 0.12  # share of the trials if half of a space fails


def main() -> int:
    """Measure, print the tables, and judge them if `--check` is given."""
    options = arguments()
    one_thread()
    if not options.table:
        measure(options.suggesters, options.minutes)
        if "bayes" in options.suggesters:
            remember(options.why)
    rows, names = known_rows(), problems.names(exam=True)
    for table in (report.regret_table, report.other_table, report.problem_table):
        print(table(rows, names) + "\n")
    return conclude(claims(rows, names)) if options.check else 0


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    options = parser(__doc__)
    options.add_argument("--suggesters", default=list(SEEDS), type=lambda text: text.split(","))
    options.add_argument("--why", help="what is decided by measuring ours")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no run later")
    options.add_argument("--table", action="store_true", help="measure nothing")
    options.add_argument("--check", action="store_true", help="exit with 1 if a claim is missed")
    given = options.parse_args()
    unknown = [name for name in given.suggesters if name not in SEEDS]
    if unknown:
        options.error(f"unknown suggester {unknown[0]!r}; choose from {', '.join(SEEDS)}")
    if "bayes" in given.suggesters and not (given.table or given.why):
        options.error("--why: say what is decided by measuring ours")
    return given


def measure(suggesters: Sequence[str], minutes: float) -> None:
    """Measure the missing runs, seed by seed, so that an interrupted measurement is balanced."""
    started = time.perf_counter()
    known = store.load(ROWS, *store.KEYS)
    for seed in range(max(SEEDS[name] for name in suggesters)):
        for suggester in (name for name in suggesters if seed < SEEDS[name]):
            for name in problems.names(exam=True):
                if (name, suggester, seed, fingerprint(suggester)) in known:
                    continue
                if time.perf_counter() - started > 60 * minutes:
                    return
                row = run(suggester, problems.load(name), scales()[name], seed, TRIALS)
                store.append(ROWS, row)
                print(f"{suggester:12s} {name:34s} {seed:2d} {row['regret'][-1]:.3f}", flush=True)


def known_rows() -> list[Row]:
    """The stored rows of one version of each suggester."""
    return select(store.load(ROWS, *store.KEYS).values())


def remember(why: str) -> None:
    """Keep what the exam said of the present code, and why it was asked."""
    rows = [row for row in known_rows() if row["code"] == fingerprint(row["suggester"])]
    found = {
        f"{kind} at {at}": mean(rows, "bayes", problems.names(kind, exam=True), at)
        for kind in KINDS
        for at in (25, 50)
    }
    entry = {"date": date.today().isoformat(), "code": fingerprint("bayes"), "why": why, **found}
    store.add(HISTORY, entry)


def claims(rows: Sequence[Row], names: Sequence[str]) -> list[Claim]:
    """What must hold on the exam."""
    found = []
    for kind in KINDS:
        own = [name for name in names if problems.load(name).kind == kind]
        half = f"{kind}: regret at 50 at most half of the best peer's"
        early = f"{kind}: at 25 no worse than the best peer at 50"
        found.append(against_peers(half, rows, own, 50, 0.5))
        found.append(against_peers(early, rows, own, 25, 1.0))
    failing = [name for name in names if "failing" in problems.load(name).tags]
    failed = mean(rows, "bayes", failing, 50, "failed")
    found.append(at_most("mean rank at 50", ranks(rows, names, 50).get("bayes"), MEAN_RANK))
    share = None if failed is None else failed / 50
    found.append(at_most("trials that fail if half of a space fails", share, FAILED))
    found.append(coverage(rows, names))
    return found


if __name__ == "__main__":
    sys.exit(main())
