"""Our suggester against its peers on problems of three kinds, through the same loop, one thread, seed by seed.

    python benchmarks/suggesters/suggesters.py                       # measure what is missing (resumable), then the tables
    python benchmarks/suggesters/suggesters.py --suggesters tpe,smac --seeds 5 --trials 50 --minutes 30
    python benchmarks/suggesters/suggesters.py --table               # the tables of the stored rows
    python benchmarks/suggesters/suggesters.py --quick [--check]     # ours alone on a fixed part, beside the stored rows
    python benchmarks/suggesters/suggesters.py --speed               # seconds a suggestion on histories of up to 10,000 trials
    python benchmarks/suggesters/suggesters.py --check               # exit status 1 where something that must hold does not

A row is kept by problem, suggester, seed and version of the suggester's code: ours is measured again when its code has
changed, peers are kept. Regret is normalised: 0 is the best known value (benchmarks/suggesters/best_known.py), 1 the mean of the
best of five random trials. Seconds are processor time on one thread.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ[
    "MKL_NUM_THREADS"
] = "1"

import argparse
import sys
import time
from pathlib import Path

from benchmarks.suggesters.aggregate import KINDS, select
from benchmarks.suggesters.contestants import ALL_NAMES, fingerprint
from benchmarks.suggesters.loop import run
from benchmarks.suggesters.scoring import scales
from benchmarks.suggesters.verdicts import verdicts

from benchmarks.common import store
from benchmarks.common.bounds import conclude
from benchmarks.common.store import Row
from benchmarks.peers.client import CannotInstall
from benchmarks.suggesters import problems, report

# In the order in which they are worth having: cheap peers first.
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
SLOW = {"optuna-gp", "hebo", "ax"}  # 50 trials, but 100 where two goals are compared at 100
QUICK = (
    "neighbours_digits", "svm_breast_cancer", "tree_pipeline", "integer_schedule", "failing_memory", "noisy_mixed",
    "front_compression", "translation_one_gpu", "language_model_eight_gpus", "mesh_sixteen_gpus",
)  # fmt: skip
QUICK_SEEDS, QUICK_SECONDS = 3, 280.0


def main() -> int:
    options = arguments()
    one_thread()
    if options.quick:
        kept = [row for key, row in store.runs().items() if key[0] in QUICK and key[1] != "bayes"]
        return finish(kept + quick(), list(QUICK), options)
    if options.speed:
        from benchmarks.suggesters.speed import measure

        measure(options.suggesters)
    elif not options.table and not options.check:
        measure_missing(options)
    return finish(list(store.runs().values()), problems.names(), options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--suggesters", default=ORDER, **names, help="comma-separated; default all")
    parser.add_argument("--problems", default=None, **names, help="comma-separated; default all")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--tag", help="only problems with this tag")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--trials", type=int, default=None, help="default 100, of the slowest peers 50"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no run after so long"
    )
    for flag in ("table", "quick", "check", "speed"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_args()
    unknown = [n for n in options.suggesters if n not in ALL_NAMES]
    if unknown:
        parser.error(f"unknown suggester {unknown[0]!r}; known: {', '.join(ALL_NAMES)}")
    return options


def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def measure_missing(options: argparse.Namespace) -> None:
    """Every run that is not stored yet, seed by seed so that an interrupted measurement is balanced."""
    known, started, broken = scales(), time.perf_counter(), set[str]()
    store.compact(store.ROWS, *store.KEYS)
    rows = store.runs()
    names = [n for n in options.problems or problems.names(options.kind, options.tag) if n in known]
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for suggester in options.suggesters:
            for name in names:
                num_trials = options.trials or usual_trials(suggester, name)
                row = rows.get((name, suggester, seed, fingerprint(suggester)))
                if (
                    suggester in broken
                    or (row and row["trials"] >= num_trials)
                    or not worth(suggester, name)
                ):
                    continue
                if time.perf_counter() - started > 60 * options.minutes:
                    return
                try:
                    measure_one(suggester, name, seed, num_trials)
                except CannotInstall as error:
                    print(f"{suggester} is left out: {error}", file=sys.stderr, flush=True)
                    broken.add(suggester)


def worth(suggester: str, problem: str) -> bool:
    """As a black box ours is only compared where metrics are reported apart."""
    return suggester != "bayes-blackbox" or "apart" in problems.load(problem).tags


def usual_trials(suggester: str, problem: str) -> int:
    return 50 if suggester in SLOW and "multi" not in problems.load(problem).tags else 100


def measure_one(suggester: str, name: str, seed: int, num_trials: int) -> None:
    try:
        row = run(suggester, problems.load(name), scales()[name], seed, num_trials)
    except CannotInstall:
        raise
    except Exception as error:  # a peer that breaks on a problem has no row there
        print(
            f"{suggester} {name} {seed}: {type(error).__name__}: {error}",
            file=sys.stderr,
            flush=True,
        )
        return
    store.append(store.ROWS, row)
    last = row["regret"][-1]
    print(
        f"{suggester:15s} {name:28s} seed {seed:2d} regret {last:.3f} {row['seconds'][0]:.3f} s",
        flush=True,
    )


def quick() -> list[Row]:
    """Ours on the fixed part, 50 trials; as many seeds as fit in the time."""
    known, started, found = scales(), time.perf_counter(), []
    for seed in range(QUICK_SEEDS):
        for name in QUICK:
            if time.perf_counter() - started < QUICK_SECONDS and name in known:
                found.append(run("bayes", problems.load(name), known[name], seed, 50))
    return found


def finish(rows: list[Row], names: list[str], options: argparse.Namespace) -> int:
    """Print the tables; with --check the verdict and figures are the last line."""
    rows, speed = select(rows), store.load(store.SPEED, "suggester", "size")
    if rows:
        tables = (report.regret_table, report.other_table, report.problem_table)
        print("\n\n".join(table(rows, names) for table in tables))
    if speed:
        print("\n" + report.speed_table(speed))
    if not options.check:
        return 0
    return conclude(verdicts(rows, speed, names))


if __name__ == "__main__":
    sys.exit(main())
