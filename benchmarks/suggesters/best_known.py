"""Searches long for the best value of every problem; writes problems/best.json.

    python benchmarks/suggesters/best_known.py [PROBLEM ...]

Random points come first, then local search. No suggester takes part, so that the normalisation
favours none. A better value replaces the old one.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from benchmarks.common.options import parser
from benchmarks.suggesters import problems
from benchmarks.suggesters.problems import Params, Problem
from benchmarks.suggesters.scoring import BEST, Losses, RegretScale, hypervolume

NUM_RANDOM = 20_000
NUM_STARTS = 12
ROUNDS = 250
NEIGHBOURS = 40
FIVE = 5

Point = tuple[float, Params]


def climb(
    problem: Problem, start: Params, loss: Callable[[Losses], float], rng: np.random.Generator
) -> Point:
    """Local search by neighbours; equal values are accepted, to cross plateaus."""
    truth = problem.truth(start)
    assert truth is not None
    best = loss(truth)
    at = start
    idle = 0
    for _ in range(ROUNDS):
        found = [(p, problem.truth(p)) for p in problem.space.neighbours(at, rng, NEIGHBOURS)]
        scored = [(loss(t), i) for i, (_, t) in enumerate(found) if t is not None]
        value, i = min(scored, default=(float("inf"), 0))
        idle = 0 if value < best else idle + 1
        if value <= best:
            best = value
            at = found[i][0]
        if idle > 30:
            break
    return best, at


def search_one(
    problem: Problem, drawn: list[tuple[Params, Losses]], rng: np.random.Generator
) -> Point:
    """The best of local searches from good and random points, and then from the best of all."""
    order = sorted(range(len(drawn)), key=lambda i: drawn[i][1])
    chosen = order[: NUM_STARTS // 2] + list(rng.choice(order[: len(order) // 2], NUM_STARTS // 2))
    ends = [climb(problem, drawn[i][0], lambda t: t[0], rng) for i in chosen]
    best = min(ends, key=lambda end: end[0])
    return min(best, climb(problem, best[1], lambda t: t[0], rng), key=lambda end: end[0])


def search_front(
    problem: Problem, drawn: list[tuple[Params, Losses]], rng: np.random.Generator
) -> list[Losses]:
    """Losses of random points and of local searches by many augmented Chebyshev weightings."""
    values = np.array([t for _, t in drawn])
    low = values.min(axis=0)
    spread = np.ptp(values, axis=0)
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


def five_random(scale: RegretScale, losses: list[Losses | None]) -> float:
    """Mean score of five random trials, over the draws that have a success."""
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
        mean = five_random(RegretScale(best, 0.0), losses)
        return {"best": best, "five_random": mean, "failing": failed, "params": dict(params)}
    reference = tuple(float(x) for x in np.quantile(np.array([t for _, t in drawn]), 0.9, axis=0))
    area = hypervolume(np.array(search_front(problem, drawn, rng)), reference)
    mean = five_random(RegretScale(0.0, 0.0, reference), losses)
    return {"best": -area, "five_random": mean, "failing": failed, "reference": reference}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("problems", nargs="*", metavar="PROBLEM", help="default: all")
    rows = json.loads(BEST.read_text()) if BEST.exists() else {}
    for name in options.parse_args().problems or problems.names(exam=None):
        row = measure(problems.load(name))
        known = rows.get(name)
        if known and known["best"] < row["best"] and known["five_random"] == row["five_random"]:  # type: ignore[operator]
            row = known
        rows[name] = row
        figures = f"best {row['best']:.6g}  five random {row['five_random']:.6g}"
        print(f"{name:28s} {figures}  failing {row['failing']}")
        print("    ", row.get("params", ""), flush=True)
        kept = {known: rows[known] for known in problems.names(exam=None) if known in rows}
        BEST.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
