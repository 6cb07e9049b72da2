"""How busy two Ray workers are while `bayes` proposes short trials; beside what Ray Tune was measured at.

    python -m benchmarks.control.utilisation [--repeats N]        measure, keep the rows
    python -m benchmarks.control.utilisation --quick [--check]    once, kept nowhere
    python -m benchmarks.control.utilisation --table [--check]    the kept rows; --check: exit status 1 where one is idle

The busy share is the ideal time (trials times seconds over workers) over the time from the first worker's first trial
to the end of the last; trials import torch, as almost every objective does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from typing import Any, Final

import automl
from benchmarks.common import store
from benchmarks.common.bounds import at_least, conclude
from search_spaces import Choice, Float, Int, Space

ROWS: Final = store.RESULTS / "utilisation.jsonl"
WORKERS: Final = 2
CASES: Final = ((40, 1.0, 0.95), (60, 0.1, 0.7))  # trials, seconds each, the least busy share
RAY_TUNE: Final = {1.0: "0.19, with reuse_actors 0.77", 0.1: "0.05"}  # the same machine, quiet

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("batch_size", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
)


class Objective:
    """Takes `seconds`; says when it began and ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, trial: Any) -> dict[str, float]:
        """A loss without noise."""
        began = time.time()
        import torch

        loss = (
            abs(torch.log10(torch.tensor(trial.params["lr"])).item() + 3.0)
            + trial.params["batch_size"] / 512
        )
        time.sleep(max(0.0, self.seconds - (time.time() - began)))
        return {"loss": loss, "began": began, "ended": time.time()}


def measure(trials: int, seconds: float) -> dict[str, float]:
    """One sweep."""
    with tempfile.TemporaryDirectory() as folder:
        result = automl.sweep(
            Objective(seconds),
            SPACE,
            "minimize loss",
            trials=trials,
            workers=WORKERS,
            seed=0,
            store=folder,
        )
    done = [trial.metrics for trial in result.trials if "ended" in trial.metrics]
    first = min(metrics["began"] for metrics in done)
    wall = max(metrics["ended"] for metrics in done) - first
    gaps = sum(metrics["ended"] - metrics["began"] for metrics in done) / (WORKERS * wall)
    bayes = sum(trial.source == "bayes" for trial in result.trials)
    return {
        "trials": trials,
        "seconds": seconds,
        "wall": round(wall, 2),
        "share": round(trials * seconds / WORKERS / wall, 3),
        "occupied": round(gaps, 3),
        "by_bayes": bayes,
        "suggestion": round(
            sum(result.snapshot.suggestion_seconds)
            / max(1, len(result.snapshot.suggestion_seconds)),
            4,
        ),
    }


def main() -> int:
    """Measure, keep the rows, print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=1)
    for flag in ("quick", "table", "check"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = parser.parse_args()
    rows = {} if given.quick else store.load(ROWS, "trials", "seconds")
    for _ in range(0 if given.table else given.repeats):
        for trials, seconds, _ in CASES:
            rows[trials, seconds] = measure(trials, seconds)
            if not given.quick:
                store.append(ROWS, rows[trials, seconds])
            print(_line(rows[trials, seconds]), flush=True)
    if given.table:
        print("\n".join(map(_line, rows.values())))
    return _check(rows) if given.check else 0


def _line(row: store.Row) -> str:
    return (
        f"{row['trials']} trials of {row['seconds']} s: busy share {row['share']:.2f}; {row['wall']} s, "
        f"{row['by_bayes']} proposed by bayes, {row['suggestion']} s a suggestion; Ray Tune {RAY_TUNE[row['seconds']]}"
    )


def _check(rows: dict[tuple[Any, ...], store.Row]) -> int:
    shares = {key: row["share"] for key, row in rows.items()}
    name = "busy share of two workers, {} trials of {:g} s"
    return conclude(
        [at_least(name.format(*case[:2]), shares.get(case[:2]), case[2]) for case in CASES]
    )


if __name__ == "__main__":
    sys.exit(main())
