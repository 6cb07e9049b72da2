"""Long searches for the best known value of every problem: random, then local search; writes problems/best.json.

    python benchmarks/suggesters/best_known.py [PROBLEM ...]

No suggester takes part, so that the normalisation favours none. A run that finds a better value replaces the old one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.suggesters.problems import Params, Problem
from benchmarks.suggesters.scoring import BEST, Losses, Scale, hypervolume

from benchmarks.suggesters import problems

NUM_RANDOM = 20_000
NUM_STARTS = 12
ROUNDS = 250
NEIGHBOURS = 40
FIVE = 5

Point = tuple[float, Params]


def climb(
    problem: Problem, start: Params, loss: Callable[[Losses], float], rng: np.random.Generator
) -> Point:
    """Local search by neighbours, accepting equal values so that plateaus are crossed."""
    truth = problem.truth(start)
    assert truth is not None
    best, at, idle = loss(truth), start, 0
    for _ in range(ROUNDS):
        found = [(p, problem.truth(p)) for p in problem.space.neighbours(at, rng, NEIGHBOURS)]
        scored = [(loss(t), i) for i, (_, t) in enumerate(found) if t is not None]
        value, i = min(scored, default=(float("inf"), 0))
        idle = 0 if value < best else idle + 1
        if value <= best:
            best, at = value, found[i][0]
        if idle > 30:
            break
    return best, at


def search_one(
    problem: Problem, drawn: list[tuple[Params, Losses]], rng: np.random.Generator
) -> Point:
    """The best of local searches from the best and from random points; the last one starts from the best of all."""
    order = sorted(range(len(drawn)), key=lambda i: drawn[i][1])
    chosen = order[: NUM_STARTS // 2] + list(rng.choice(order[: len(order) // 2], NUM_STARTS // 2))
    ends = [climb(problem, drawn[i][0], lambda t: t[0], rng) for i in chosen]
    best = min(ends, key=lambda end: end[0])
    return min(best, climb(problem, best[1], lambda t: t[0], rng), key=lambda end: end[0])


def search_front(
    problem: Problem, drawn: list[tuple[Params, Losses]], rng: np.random.Generator
) -> list[Losses]:
    """Losses of the random points and of local searches along many weightings (augmented Chebyshev)."""
    values = np.array([t for _, t in drawn])
    low, spread = values.min(axis=0), np.ptp(values, axis=0)
    ends: list[Losses] = [t for _, t in drawn]
    for weight in np.linspace(0.02, 0.98, 60):
        weights = np.array([weight, 1 - weight])

        def loss(truth: Losses, weights: np.ndarray = weights) -> float:
            scaled = weights * (np.array(truth) - low) / spread
            return float(scaled.max() + 0.02 * scaled.sum())

        start = min(drawn, key=lambda item: loss(item[1]))[0]
        end = problem.truth(climb(problem, start, loss, rng)[1])
        assert end is not None
        ends.append(end)
    return ends


def five_random(scale: Scale, losses: list[Losses | None]) -> float:
    """Mean score of five random trials, over draws of which at least one succeeded."""
    groups = [losses[i : i + FIVE] for i in range(0, len(losses), FIVE)]
    return float(
        np.mean([scale.score(group) for group in groups if any(item is not None for item in group)])
    )


def measure(problem: Problem) -> dict[str, object]:
    """The row of one problem."""
    rng = np.random.default_rng(2024)
    points = problem.space.sample(rng, NUM_RANDOM)
    losses = [problem.truth(params) for params in points]
    drawn = [(p, t) for p, t in zip(points, losses, strict=True) if t is not None]
    failed = round(1 - len(drawn) / NUM_RANDOM, 3)
    if len(problem.goals) == 1:
        best, params = search_one(problem, drawn, rng)
        mean = five_random(Scale(best, 0.0), losses)
        return {"best": best, "five_random": mean, "failing": failed, "params": dict(params)}
    reference = tuple(float(x) for x in np.quantile(np.array([t for _, t in drawn]), 0.9, axis=0))
    area = hypervolume(np.array(search_front(problem, drawn, rng)), reference)
    mean = five_random(Scale(0.0, 0.0, reference), losses)
    return {"best": -area, "five_random": mean, "failing": failed, "reference": reference}


def main() -> None:
    rows = json.loads(BEST.read_text()) if BEST.exists() else {}
    for name in sys.argv[1:] or problems.names():
        row = measure(problems.load(name))
        known = rows.get(name)
        if known and known["best"] < row["best"] and known["five_random"] == row["five_random"]:  # type: ignore[operator]
            row = known
        rows[name] = row
        print(
            f"{name:28s} best {row['best']:.6g}  five random {row['five_random']:.6g}  failing {row['failing']}"
        )
        print("    ", row.get("params", ""), flush=True)
        BEST.write_text(
            json.dumps({n: rows[n] for n in problems.names() if n in rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
