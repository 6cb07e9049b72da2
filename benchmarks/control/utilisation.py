"""How busy two Ray workers are while a suggester proposes short trials, beside Ray Tune.

    python benchmarks/control/utilisation.py                      measure and store the rows
    python benchmarks/control/utilisation.py --quick [--check]    each case once
    python benchmarks/control/utilisation.py --table [--check]    the stored rows

The busy share is the ideal time (trials * seconds / workers) divided by the time from the start
of the first trial to the end of the last. Trials import torch, as most objectives do.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any, Final

import automl
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, conclude
from benchmarks.common.options import benchmark_parser
from search_spaces import Choice, Float, Int, Space

ROWS: Final = store.RESULTS / "utilisation.jsonl"
WORKERS: Final = 2
# The suggester, the number of trials, the seconds of each, the least busy share. `bayes` makes
# no suggestion that ignores an outcome, so of its short trials nothing is promised.
CASES: Final = (
    ("random", 60, 1.0, 0.95),
    ("random", 100, 0.1, 0.7),
    ("bayes", 20, 10.0, 0.95),
    ("bayes", 40, 1.0, None),
)
RAY_TUNE: Final = {1.0: "; Ray Tune 0.19, with reuse_actors 0.77", 0.1: "; Ray Tune 0.05"}

SPACE = Space(
    Float("lr", 1e-5, 1e-1, log=True),
    Int("batch_size", 8, 512, log=True),
    Choice("optimizer", ["sgd", "adam"]),
    Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
)


class Objective:
    """Takes `seconds`; its metrics say when it began and ended."""

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


def measure(suggester: str, trials: int, seconds: float) -> dict[str, Any]:
    """Run one sweep."""
    with tempfile.TemporaryDirectory() as folder:
        result = automl.sweep(
            Objective(seconds),
            SPACE,
            "minimize loss",
            trials=trials,
            workers=WORKERS,
            seed=0,
            suggester=suggester,
            dispatcher="ray",
            store=folder,
        )
    done = [trial.metrics for trial in result.trials if "ended" in trial.metrics]
    wall = max(m["ended"] for m in done) - min(m["began"] for m in done)
    thought = result.snapshot.suggestion_seconds
    return {
        "suggester": suggester,
        "trials": trials,
        "seconds": seconds,
        "wall": round(wall, 2),
        "share": round(trials * seconds / WORKERS / wall, 3),
        "suggestion": round(sum(thought) / max(1, len(thought)), 4),
    }


def main() -> int:
    """Measure, store and print the rows."""
    given = benchmark_parser(__doc__, "each case once").parse_args()
    rows = store.load(ROWS, "suggester", "seconds") if given.table else {}
    for suggester, trials, seconds, _ in () if given.table else CASES:
        rows[suggester, seconds] = row = measure(suggester, trials, seconds)
        if not given.quick:
            store.append(ROWS, row)
        print(_line(row), flush=True)
    if given.table:
        print("\n".join(map(_line, rows.values())))
    return conclude(claims(rows)) if given.check else 0


def _line(row: store.Row) -> str:
    return (
        f"{row['suggester']}, {row['trials']} trials of {row['seconds']} s: busy share "
        f"{row['share']:.2f}; {row['wall']} s, {row['suggestion']} s for a suggestion"
        f"{RAY_TUNE.get(row['seconds'], '')}"
    )


def claims(rows: dict[tuple[Any, ...], store.Row]) -> list[Claim]:
    """The least busy share of each case that promises one."""
    shares = {key: row["share"] for key, row in rows.items()}
    return [
        at_least(f"busy share, {name}, trials of {seconds:g} s", shares.get((name, seconds)), least)
        for name, _, seconds, least in CASES
        if least is not None
    ]


if __name__ == "__main__":
    sys.exit(main())
