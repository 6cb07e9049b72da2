"""Whether the answer of a sweep holds, on twelve functions whose truth is known.

    python benchmarks/noise/answers.py [--seeds 40] [--trials 20]    measure what is missing
    python benchmarks/noise/answers.py --quick [--check]              two seeds, nothing is stored
    python benchmarks/noise/answers.py --table [--check]              the stored rows

Each function is tuned under noise. Counted are: how often the 90% interval of the recommendation
holds its true mean, how often a configuration that "beats the default" with 95% does so, and by how
much of the noise the ends of the plateaus are worse than the recommendation (the median).
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

import automl
from automl import Choice, Float, Int, Space
from automl.report.answer import answer
from automl.report.record import Record
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser

Params = Mapping[str, Any]
ROWS: Final = store.RESULTS / "answers.jsonl"
KEYS: Final = ("function", "seed", "trials")
EDGE: Final = 0.02  # of a range: an end of a plateau there is no end

X, Y, Z = (Float(name, 0.0, 1.0, default=0.2) for name in "xyz")
LR: Final = Float("lr", 1e-5, 1e-1, log=True, default=1e-4)
SVM: Final = {"model": "svm"}
NEVER: Final[Callable[[Params], bool]] = lambda p: False  # noqa: E731


def decades(value: float, best: float) -> float:
    """The square of the distance from the best value in powers of ten."""
    return (math.log10(value) - best) ** 2


# Of each function: the loss, the space, the noise, whether it is maximised, and what fails.
FUNCTIONS: Final[dict[str, tuple[Callable[[Params], float], Space, float, bool, Any]]] = {
    "bowl": (lambda p: 4 * (p["x"] - 0.6) ** 2 + (p["y"] - 0.3) ** 2,
             Space(X, Y), 0.1, False, NEVER),
    "three numbers": (lambda p: 2 * (p["x"] - 0.7) ** 2 + (p["y"] - 0.6) ** 2 + 0 * p["z"],
                      Space(X, Y, Z), 0.1, True, NEVER),
    "valley": (lambda p: 3 * (p["x"] - p["y"]) ** 2 + (p["x"] - 0.6) ** 2,
               Space(X, Float("y", 0.0, 1.0, default=0.8)), 0.05, False, NEVER),
    "waves": (lambda p: math.sin(9 * p["x"]) / 3 + (p["y"] - 0.5) ** 2,
              Space(X, Y), 0.1, True, NEVER),
    "rate": (lambda p: 0.5 * decades(p["lr"], -2.5) + 0.3 * (p["optimizer"] == "sgd"),
             Space(LR, Choice("optimizer", ["adam", "sgd"], default="sgd")), 0.1, False, NEVER),
    "rate and decay": (lambda p: 0.3 * decades(p["lr"], -3) + 0.1 * decades(p["decay"], -3),
                       Space(LR, Float("decay", 1e-6, 1.0, log=True, default=1e-6)),
                       0.2, True, NEVER),
    "branches": (lambda p: 0.2 + 0.3 * decades(p["C"], 1) if p["model"] == "svm"
                 else 0.4 + 0.5 * (p["depth"] - 0.7) ** 2,
                 Space(Choice("model", ["svm", "tree"], default="tree"),
                       Float("C", 1e-3, 1e3, log=True, default=1.0, when=SVM),
                       Float("depth", 0.0, 1.0, default=0.2, when={"model": "tree"})),
                 0.05, False, NEVER),
    "kernels": (lambda p: 0.5 if p["model"] == "linear" else 0.1 + 0.2 * decades(p["C"], 1)
                + (0.1 * decades(p["gamma"], -2) if p["kernel"] == "rbf" else 0.2),
                Space(Choice("model", ["svm", "linear"], default="linear"),
                      Float("C", 1e-2, 1e3, log=True, default=1.0, when=SVM),
                      Choice("kernel", ["rbf", "poly"], default="poly", when=SVM),
                      Float("gamma", 1e-4, 1.0, log=True, default=1e-3, when={"kernel": "rbf"})),
                0.1, True, NEVER),
    "failing": (lambda p: (p["x"] - 0.6) ** 2 + (p["y"] - 0.6) ** 2,
                Space(X, Y), 0.05, False, lambda p: p["x"] + p["y"] > 1.4),
    "failing choices": (lambda p: 0.3 * decades(p["C"], 0.5) + 0.2 * (p["penalty"] == "l2"),
                        Space(Float("C", 1e-3, 1e3, log=True, default=0.01),
                              Choice("penalty", ["l1", "l2", "both"], default="l2")),
                        0.1, True, lambda p: p["penalty"] == "both"),
    "choices": (lambda p: 0.2 * p["a"] + 0.15 * p["b"] + 0.3 * (p["c"] == "no"),
                Space(Choice("a", [0, 1, 2, 3], default=2), Choice("b", [2, 0, 1], default=2),
                      Choice("c", ["yes", "no"], default="no")), 0.1, False, NEVER),
    "whole numbers": (lambda p: 0.05 * (p["layers"] - 6) ** 2
                      + 0.2 * (math.log2(p["width"]) - 7) ** 2 / 4,
                      Space(Int("layers", 1, 12, default=2),
                            Int("width", 8, 1024, log=True, default=32)), 0.1, True, NEVER),
}  # fmt: skip


def measure(name: str, seed: int, trials: int) -> store.Row:
    """One sweep, and whether its answer holds."""
    loss, space, noise, maximize, fails = FUNCTIONS[name]
    sign, rng = -1 if maximize else 1, np.random.default_rng(seed)

    def objective(trial: Any) -> float:
        if fails(trial.params):
            raise ArithmeticError("this part of the space fails")
        return sign * loss(trial.params) + noise * float(rng.normal())

    with tempfile.TemporaryDirectory() as folder:
        goal = f"{'maximize' if maximize else 'minimize'} value"
        options: Any = {"trials": trials, "seed": seed, "store": folder, "progress": False}
        result = automl.sweep(objective, space, goal, dispatcher="inline", **options)
    found = answer(Record.of(result.snapshot))
    advice = found.recommendation
    row: store.Row = {"function": name, "seed": seed, "trials": trials, "known": False}
    if advice is None or advice.interval is None:
        return row
    mean = loss(advice.params)
    costs = [
        loss({**advice.params, one.name: space.parameters[one.name].from_unit(end)}) - mean  # type: ignore[attr-defined]
        for one in found.rows
        for end in one.band or ()
        if EDGE < end < 1 - EDGE
    ]
    low, high = ((end - sign * mean) / noise for end in advice.interval)
    better = advice.probability_better
    return row | {
        "known": True,
        "interval": [round(low, 3), round(high, 3)],  # around the truth, in units of the noise
        "better": None if better is None else round(better, 3),
        "gain": round((loss(space.default() or {}) - mean) / noise, 3),
        "costs": [round(cost / noise, 3) for cost in costs],
        "noise": round(found.outlook.noise / noise, 3) if found.outlook else None,
    }


def summary(rows: Sequence[store.Row]) -> store.Row:
    """Shares and medians of these rows."""
    known = [row for row in rows if row["known"]]
    held = [row["interval"][0] <= 0 <= row["interval"][1] for row in known]
    sure = [row["gain"] > 0 for row in known if (row["better"] or 0.0) > 0.95]
    costs = [cost for row in known for cost in row["costs"]]
    return {
        "sweeps": len(rows),
        "known": len(known),
        "held": statistics.mean(held) if held else math.nan,
        "sure": len(sure),
        "true": statistics.mean(sure) if sure else math.nan,
        "cost": statistics.median(costs) if costs else math.nan,
    }


def claims(rows: Sequence[store.Row]) -> list[Claim]:
    """What the answer promises."""
    found = summary(rows)
    return [
        at_least("90% intervals that hold the truth", found["held"], 0.85),
        at_most("90% intervals that hold the truth", found["held"], 0.95),
        at_least("'beats the default' at 95% is true", found["true"], 0.9),
        at_least("the ends of a plateau cost, of the noise", found["cost"], 0.5),
        at_most("the ends of a plateau cost, of the noise", found["cost"], 2.0),
    ]


def show(rows: Sequence[store.Row]) -> None:
    """A line for each function, and one for all."""
    print("| function | sweeps | known | interval holds | sure | of these true | plateau costs |")
    print("|---|---|---|---|---|---|---|")
    names = [name for name in FUNCTIONS if any(row["function"] == name for row in rows)]
    for name in [*names, "all"]:
        one = summary([row for row in rows if name in (row["function"], "all")])
        shares = f"{one['held']:.0%} | {one['sure']} | {one['true']:.0%} | {one['cost']:.2f}"
        print(f"| {name} | {one['sweeps']} | {one['known']} | {shares} |")


def main() -> int:
    """Measure, print the table, and judge the claims."""
    parser = benchmark_parser(__doc__, "two seeds")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    known = {} if options.quick else store.load(ROWS, *KEYS)
    wanted = [
        (name, seed, options.trials)
        for seed in range(2 if options.quick else options.seeds)
        for name in FUNCTIONS
    ]
    for key in wanted if not options.table else ():
        if key not in known:
            known[key] = measure(*key)
            if not options.quick:
                store.append(ROWS, known[key])
    rows = [known[key] for key in wanted if key in known]
    show(rows)
    missing = complete("every sweep", [key for key in wanted if key not in known])
    return conclude([missing, *claims(rows)]) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
