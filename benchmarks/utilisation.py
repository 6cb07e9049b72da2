"""How busy two Ray workers are while `bayes` proposes short trials; beside what Ray Tune was measured at.

    python -m benchmarks.utilisation [--repeats N]

The busy share is the ideal time (trials times seconds over workers) over the time from the first worker's first trial
to the end of the last; trials import torch, as almost every objective does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import automl
from search_spaces import Choice, Float, Int, Space

ROWS: Final = Path(__file__).parent / "results" / "utilisation.jsonl"
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

        loss = abs(torch.log10(torch.tensor(trial.params["lr"])).item() + 3.0) + trial.params["batch_size"] / 512
        time.sleep(max(0.0, self.seconds - (time.time() - began)))
        return {"loss": loss, "began": began, "ended": time.time()}


def measure(trials: int, seconds: float) -> dict[str, float]:
    """One sweep."""
    with tempfile.TemporaryDirectory() as store:
        result = automl.sweep(
            Objective(seconds), SPACE, "minimize loss", trials=trials, workers=WORKERS, seed=0, store=store
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
            sum(result.snapshot.suggestion_seconds) / max(1, len(result.snapshot.suggestion_seconds)), 4
        ),
    }


def main() -> None:
    """Measure, keep the rows, print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    for _ in range(arguments.repeats):
        for trials, seconds, wanted in CASES:
            row = measure(trials, seconds)
            ROWS.parent.mkdir(exist_ok=True)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            verdict = "met" if row["share"] >= wanted else "NOT met"
            print(
                f"{trials} trials of {seconds} s: busy share {row['share']:.2f} (at least {wanted}: {verdict}); "
                f"{row['wall']} s, {row['by_bayes']} proposed by bayes, {row['suggestion']} s a suggestion; "
                f"Ray Tune {RAY_TUNE[seconds]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
