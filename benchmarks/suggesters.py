"""Our suggester against its peers on problems of three kinds, through the same loop, one thread, seed by seed.

    python benchmarks/suggesters.py                       # measure what is missing (resumable), then the tables
    python benchmarks/suggesters.py --suggesters tpe,smac --seeds 5 --trials 50 --minutes 30
    python benchmarks/suggesters.py --table               # the tables of the stored rows
    python benchmarks/suggesters.py --quick [--check]     # ours alone on a fixed part, beside the stored rows
    python benchmarks/suggesters.py --check               # exit status 1 where something that must hold does not

Regret is normalised: 0 is the best known value (benchmarks/best_known.py), 1 the mean of the best of five random
trials.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import problems, report, store
from benchmarks.contestants import ALL_NAMES, fingerprint
from benchmarks.loop import run
from benchmarks.scoring import scales
from benchmarks.store import Row

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
SLOW_TRIALS = {"optuna-gp": 50, "hebo": 50}
QUICK = (
    "neighbours_digits", "svm_breast_cancer", "tree_pipeline", "integer_schedule", "failing_memory", "noisy_mixed",
    "front_compression", "translation_one_gpu", "language_model_eight_gpus", "mesh_sixteen_gpus",
)  # fmt: skip
QUICK_SEEDS, QUICK_SECONDS = 3, 280.0


def main() -> int:
    options = arguments()
    one_thread()
    rows = store.runs()
    if options.quick:
        measured = quick(rows)
        kept = [row for key, row in rows.items() if key[0] in QUICK and key[1] != "bayes"]
        return finish(kept + measured, options, only=set(QUICK))
    if options.speed:
        from benchmarks.speed import measure

        measure(options.suggesters)
    elif not options.table and not options.check:
        measure_missing(options, rows)
    return finish(list(store.runs().values()), options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--suggesters", default=ORDER, **names, help="comma-separated; default all")
    parser.add_argument("--problems", default=None, **names, help="comma-separated; default all")
    parser.add_argument("--kind", choices=report.KINDS)
    parser.add_argument("--tag", help="only problems with this tag")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=None, help="default 100; 50 for the slowest peers")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so long")
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


def measure_missing(options: argparse.Namespace, rows: dict[tuple[Any, ...], Row]) -> None:
    """Every run that is not stored yet, seed by seed so that an interrupted measurement is balanced."""
    known, started = scales(), time.perf_counter()
    names = options.problems or problems.names(options.kind, options.tag)
    store.compact(store.ROWS, "problem", "suggester", "seed")
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for suggester in options.suggesters:
            num_trials = options.trials or SLOW_TRIALS.get(suggester, 100)
            for name in names:
                if stored(rows.get((name, suggester, seed)), suggester, num_trials) or name not in known:
                    continue
                if time.perf_counter() - started > 60 * options.minutes:
                    return
                measure_one(suggester, name, seed, num_trials)


def stored(row: Row | None, suggester: str, num_trials: int) -> bool:
    return row is not None and row["trials"] >= num_trials and row["code"] == fingerprint(suggester)


def measure_one(suggester: str, name: str, seed: int, num_trials: int) -> Row | None:
    try:
        row = run(suggester, problems.load(name), scales()[name], seed, num_trials)
    except Exception as error:  # a peer that breaks on a problem has no row there
        print(f"{suggester} {name} {seed}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None
    store.append(store.ROWS, row)
    last = row["regret"][-1]
    print(f"{suggester:15s} {name:28s} seed {seed:2d} regret {last:.3f} {row['seconds'][0]:.3f} s", flush=True)
    return row


def quick(rows: dict[tuple[Any, ...], Row]) -> list[Row]:
    """Ours on the fixed part, 50 trials; as many seeds as fit in the time."""
    known, started, found = scales(), time.perf_counter(), []
    for seed in range(QUICK_SEEDS):
        for name in QUICK:
            if time.perf_counter() - started < QUICK_SECONDS and name in known:
                found.append(run("bayes", problems.load(name), known[name], seed, 50))
    return found


def finish(rows: list[Row], options: argparse.Namespace, only: set[str] | None = None) -> int:
    """Print the tables; with --check the verdict and figures are the last line."""
    speed = store.load(store.SPEED, "suggester", "size")
    if rows:
        print("\n\n".join([report.regret_table(rows), report.other_table(rows), report.problem_table(rows)]))
    if speed:
        print("\n" + report.speed_table(speed))
    if not options.check:
        return 0
    verdicts = report.verdicts(rows, speed, only)
    print("\n" + "\n".join(map(str, verdicts)))
    missed = [verdict for verdict in verdicts if not verdict.holds]
    figures = "; ".join(f"{v.name} {v.figures}" for v in missed)
    print(f"MISSED {len(missed)} of {len(verdicts)}: {figures}" if missed else f"HOLDS: all {len(verdicts)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
