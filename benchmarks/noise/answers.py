"""Whether the answer of a sweep holds: python benchmarks/noise/answers.py --seeds 40

Functions with a known mean are tuned under noise. For each: how often the 90% interval of the
recommendation holds its true mean, how often "beats the default" at 95% is true, and what the ends
of the plateaus cost, in units of the noise (the median).
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

import automl
from automl import Choice, Float, Space
from automl.report.answer import answer
from automl.report.record import Record

Params = Mapping[str, Any]
Truth = Callable[[Params], float]


def bowl(p: Params) -> float:
    """Two numbers, one of which matters more."""
    return 4 * (p["x"] - 0.6) ** 2 + (p["y"] - 0.3) ** 2


def rate(p: Params) -> float:
    """A number on a log scale, and a choice."""
    return 0.5 * (math.log10(p["lr"]) + 2.5) ** 2 + 0.3 * (p["optimizer"] == "sgd")


def branches(p: Params) -> float:
    """A choice with a parameter of its own for each value."""
    if p["model"] == "svm":
        return 0.2 + 0.3 * (math.log10(p["C"]) - 1) ** 2
    return 0.4 + 0.5 * (p["depth"] - 0.7) ** 2


FUNCTIONS: Final[Mapping[str, tuple[Truth, Space]]] = {
    "bowl": (bowl, Space(Float("x", 0.0, 1.0, default=0.2), Float("y", 0.0, 1.0, default=0.5))),
    "rate": (
        rate,
        Space(
            Float("lr", 1e-5, 1e-1, log=True, default=1e-4),
            Choice("optimizer", ["adam", "sgd"], default="sgd"),
        ),
    ),
    "branches": (
        branches,
        Space(
            Choice("model", ["svm", "tree"], default="tree"),
            Float("C", 1e-3, 1e3, log=True, default=1.0, when={"model": "svm"}),
            Float("depth", 0.0, 1.0, default=0.2, when={"model": "tree"}),
        ),
    ),
}


def measure(
    name: str, seed: int, trials: int, noise: float, sign: int, suggester: str
) -> dict[str, Any]:
    """One sweep, and whether its answer holds."""
    truth, space = FUNCTIONS[name]
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as store:
        result = automl.sweep(
            lambda trial: sign * truth(trial.params) + noise * rng.normal(),
            space,
            f"{'minimize' if sign > 0 else 'maximize'} value",
            trials=trials,
            seed=seed,
            store=store,
            suggester=suggester,
            dispatcher="inline",
            progress=False,
        )
    found = answer(Record.of(result.snapshot))
    advice = found.recommendation
    if advice is None or advice.interval is None:
        return {"known": False}
    mean, default = truth(advice.params), truth(space.default() or {})
    costs = [
        abs(truth({**advice.params, row.name: space.parameters[row.name].from_unit(end)}) - mean)  # type: ignore[attr-defined]
        for row in found.rows
        for end in row.band or ()
        if 0.02 < end < 0.98
    ]
    sure = (advice.probability_better or 0.0) > 0.95
    return {
        "known": True,
        "held": advice.interval[0] <= sign * mean <= advice.interval[1],
        "sure": sure,
        "true": mean < default if sure else None,
        "cost": statistics.median(costs) / noise if costs else None,
    }


def main() -> None:
    """Measure, and print a line for each function."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--suggester", default="bayes")
    parser.add_argument("--noise", type=float, default=0.1)
    options = parser.parse_args()
    for name in FUNCTIONS:
        for sign in (1, -1):
            rows = [
                measure(name, seed, options.trials, options.noise, sign, options.suggester)
                for seed in range(options.seeds)
            ]
            known = [row for row in rows if row["known"]]
            true = [row["true"] for row in known if row["sure"]]
            costs = [row["cost"] for row in known if row["cost"] is not None]
            print(
                f"{name} {'min' if sign > 0 else 'max'}: known {len(known)} of {len(rows)}, "
                f"interval holds {sum(row['held'] for row in known)}, "
                f"beats the default at 95% {sum(true)} of {len(true)}, "
                f"plateau costs {statistics.median(costs) if costs else math.nan:.2f} of the noise",
                flush=True,
            )


if __name__ == "__main__":
    main()
