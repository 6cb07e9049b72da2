"""Ask and tell, for a loop of your own, such as a laboratory experiment: automl runs nothing."""

from __future__ import annotations

import argparse
import math

import automl
from automl import Float, Space

SPACE = Space(Float("temperature", 20.0, 120.0), Float("minutes", 1.0, 60.0, log=True))


class Ruined(Exception):
    """The sample has boiled over."""


def experiment(temperature: float, minutes: float) -> float:
    """The yield of a reaction; too hot for too long, and nothing is left."""
    if temperature * math.log(minutes) > 350:
        raise Ruined
    return math.exp(-(((temperature - 90) / 25) ** 2)) * (1 - math.exp(-minutes / 12))


def main(trials: int = 20) -> automl.Optimizer:
    """Ask what to try, try it, tell what came of it."""
    optimizer = automl.Optimizer(SPACE, "maximize yield", seed=0)
    # What is known from before counts, and need not be measured again.
    optimizer.add({"temperature": 60.0, "minutes": 10.0}, {"yield": experiment(60.0, 10.0)})
    for _ in range(trials):
        trial = optimizer.ask()
        try:
            optimizer.tell(trial, {"yield": experiment(**trial.params)})  # type: ignore[arg-type]
        except Ruined:
            optimizer.fail(trial, "crashed")  # that teaches it where not to go
    best = optimizer.best
    assert best is not None
    print(f"yield {best.metrics['yield']:.1%} at {best.params}")
    return optimizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    main(parser.parse_args().trials)
