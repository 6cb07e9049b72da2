"""Sweeps and races of the workloads beside plain loops."""

from __future__ import annotations

from typing import Any

import automl
from benchmarks.common.bounds import Claim, at_most
from benchmarks.common.paired import interleaved, ratios
from benchmarks.training.contests import Contest


def sweep(contest: Contest, trials: int) -> dict[str, Any]:
    """The fastest configuration that the default suggester finds."""
    optimizer = automl.Optimizer(
        contest.space(), "minimize seconds_each", contest.constraints, seed=0
    )
    for number in range(trials):
        trial = optimizer.ask()
        outcome = contest.attempt(trial.params, contest.fixed, contest.train_seconds)
        if outcome.failure:
            optimizer.fail(trial, outcome.failure)
            print(f"  trial {number}: {outcome.message} {dict(trial.params)}", flush=True)
        else:
            seconds = contest.seconds(outcome.metrics)
            optimizer.tell(trial, {"seconds_each": seconds, **outcome.metrics})
            print(f"  trial {number}: {seconds:.5g} {dict(trial.params)}", flush=True)
    best = optimizer.best
    return dict(best.params) if best else {}


def compete(contest: Contest, trials: int, rounds: int) -> list[Claim]:
    """Run a contest: a sweep of some trials, and a race of some rounds."""
    print(f"\n{contest.title}, CPU {contest.unit}", flush=True)
    found = sweep(contest, trials)
    racers = {"plain": contest.plain, "default": contest.ours({}), "best": contest.ours(found)}
    taken = interleaved(racers, rounds)
    ratio = ratios(taken, "plain")
    for racer, seconds in taken.items():
        figures = f"{min(seconds):10.5g} at best, ratio to plain {ratio[racer]:.3f}"
        print(f"  {racer:8s} {figures}", flush=True)
    print(f"  best: {found}", flush=True)
    bounds = {"default": contest.default_bound, "best": contest.best_bound}
    return [
        at_most(f"{contest.title}: {racer}, ratio to the plain loop", ratio[racer], bound)
        for racer, bound in bounds.items()
    ]
