"""Our suggester against its peers on 44 problems of three kinds, in the same loop on one thread.

    python benchmarks/suggesters/suggesters.py                       measure the missing rows
    python benchmarks/suggesters/suggesters.py --suggesters tpe,smac --seeds 5 --minutes 30
    python benchmarks/suggesters/suggesters.py --speed               seconds of a suggestion
    python benchmarks/suggesters/suggesters.py --quick [--check]     ours on ten problems
    python benchmarks/suggesters/suggesters.py --table [--check]     the stored rows
    python benchmarks/suggesters/suggesters.py --declare-same OLD    see below

A row belongs to a problem, a suggester, a seed and a fingerprint of the suggester's code. Rows of
ours are measured again if the code has changed; those of peers stay. If the code was moved or
renamed and computes the same (`tests/stress/same_numbers.py` proves it), `--declare-same OLD` keeps
the rows of fingerprint OLD valid, in results/same_code.json.

Regret is normalised: 0 is the best known value (`problems/best.json`), 1 the best of five random
trials (mean). Seconds are CPU time.
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

from benchmarks.common import store
from benchmarks.common.bounds import conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.common.store import Row
from benchmarks.suggesters import problems, report, speed
from benchmarks.suggesters.aggregate import KINDS, select
from benchmarks.suggesters.claims import Speed, claims, quick_claims
from benchmarks.suggesters.contestants import ALL_NAMES, PEERS
from benchmarks.suggesters.fingerprint import OWN, declare_same, fingerprint
from benchmarks.suggesters.loop import run
from benchmarks.suggesters.scoring import scales

# Cheap peers first.
ORDER = [
    "bayes",
    "random",
    "sobol",
    "tpe",
    "tpe-group",
    "tpe-plain",
    "bayes-blackbox",
    "smac",
    "optuna-gp",
    "hebo",
    "ax",
]
SLOW = {"optuna-gp", "hebo", "ax"}  # 50 trials; 100 with two goals, which are compared at 100
QUICK = (
    "neighbours_digits",
    "svm_breast_cancer",
    "tree_pipeline",
    "integer_schedule",
    "failing_memory",
    "noisy_mixed",
    "front_compression",
    "translation_one_gpu",
    "language_model_eight_gpus",
    "mesh_sixteen_gpus",
)
QUICK_SEEDS = 3
QUICK_SECONDS = 220.0
QUICK_SIZES = (50, 200)


def main() -> int:
    """Measure, print the tables, and judge them if `--check` is given."""
    options = arguments()
    one_thread()
    if options.declare_same:
        print(f"{declare_same(options.declare_same)} is the same code as {options.declare_same}")
        return 0
    if options.quick:
        return quick(options.check)
    if options.speed:
        speed.measure(options.suggesters)
    elif not options.table:
        measure_missing(options)
    rows = select(store.runs().values())
    timings = store.load(store.SPEED, "suggester", "size")
    show(rows, timings, problems.names())
    return conclude(claims(rows, timings, problems.names())) if options.check else 0


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = benchmark_parser(__doc__, "ours on ten problems, beside the stored rows of peers")
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--suggesters", default=ORDER, **names, help="comma-separated; default all")
    parser.add_argument("--problems", default=None, **names, help="comma-separated; default all")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", help="only problems with this tag")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--trials", type=int, default=None, help="default 100; 50 for the slowest peers"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no run after this time"
    )
    parser.add_argument("--speed", action="store_true", help="measure seconds of a suggestion")
    parser.add_argument("--declare-same", metavar="OLD", help="a fingerprint of stored rows")
    options = parser.parse_args()
    unknown = [n for n in options.suggesters if n not in ALL_NAMES]
    if unknown:
        parser.error(f"unknown suggester {unknown[0]!r}; choose from {', '.join(ALL_NAMES)}")
    return options


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def measure_missing(options: argparse.Namespace) -> None:
    """Measure the missing runs, seed by seed, so that an interrupted measurement is balanced."""
    known = scales()
    started = time.perf_counter()
    store.compact(store.ROWS, *store.KEYS)
    rows = store.runs()
    names = [n for n in options.problems or problems.names(options.kind, options.tag) if n in known]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for suggester in options.suggesters:
            for name in names:
                num_trials = options.trials or usual_trials(suggester, name)
                row = rows.get((name, suggester, seed, fingerprint(suggester)))
                if (
                    suggester in PEERS
                    or (row and row["trials"] >= num_trials)
                    or not worth(suggester, name)
                ):
                    continue
                if time.perf_counter() - started > 60 * options.minutes:
                    return
                measure_one(suggester, name, seed, num_trials)


def worth(suggester: str, problem: str) -> bool:
    """Whether to measure it: the black box runs only if metrics are reported apart."""
    return suggester != "bayes-blackbox" or "apart" in problems.load(problem).tags


def usual_trials(suggester: str, problem: str) -> int:
    return 50 if suggester in SLOW and "multi" not in problems.load(problem).tags else 100


def measure_one(suggester: str, name: str, seed: int, num_trials: int) -> None:
    try:
        row = run(suggester, problems.load(name), scales()[name], seed, num_trials)
    except Exception as error:  # the peer has no row of this problem
        text = f"{suggester} {name} {seed}: {type(error).__name__}: {error}"
        print(text, file=sys.stderr, flush=True)
        return
    store.append(store.ROWS, row)
    figures = f"regret {row['regret'][-1]:.3f} {row['seconds'][0]:.3f} s"
    print(f"{suggester:15s} {name:28s} seed {seed:2d} {figures}", flush=True)


def quick(check: bool) -> int:
    """Measure ours on the ten problems with 50 trials, as many seeds as fit; then the seconds."""
    known = scales()
    started = time.perf_counter()
    kept = [row for key, row in store.runs().items() if key[0] in QUICK and key[1] not in OWN]
    found = []
    for seed in range(QUICK_SEEDS):
        for name in QUICK:
            if time.perf_counter() - started < QUICK_SECONDS:
                found.append(run("bayes", problems.load(name), known[name], seed, 50))
    rows = select(kept + found)
    timings = {("bayes", row["size"]): row for row in speed.rows("bayes", QUICK_SIZES)}
    show(rows, timings, QUICK)
    return conclude(quick_claims(rows, timings, QUICK, QUICK_SIZES)) if check else 0


def show(rows: Sequence[Row], timings: Speed, names: Sequence[str]) -> None:
    """Print the tables."""
    if rows:
        tables = (report.regret_table, report.other_table, report.problem_table)
        print("\n\n".join(table(rows, names) for table in tables))
    if timings:
        print("\n" + report.speed_table(timings))


if __name__ == "__main__":
    sys.exit(main())
