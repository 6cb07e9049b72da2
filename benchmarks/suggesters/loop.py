"""One run: the trials of one contestant on one problem with one seed."""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np

from automl.core.ranking import best
from automl.core.trial import Trial
from automl.suggesters.base import Suggester
from benchmarks.suggesters.contestants import make
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.problems import Problem
from benchmarks.suggesters.scoring import RegretScale

POINTS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100)


def run(
    name: str, problem: Problem, scale: RegretScale, seed: int, num_trials: int
) -> dict[str, Any]:
    """The row of one run: regret and failures at `POINTS`, and the CPU seconds of suggestions."""
    suggester = make(name, problem, seed)
    try:
        trials, seconds = _trials(suggester, problem, seed, num_trials)
    finally:
        getattr(suggester, "close", lambda: None)()
    points = [n for n in POINTS if n <= num_trials]
    late = sorted(seconds[10:50] or seconds)
    return {
        "problem": problem.name,
        "suggester": name,
        "seed": seed,
        "trials": num_trials,
        "code": fingerprint(name),
        "at": points,
        "regret": [round(regret(problem, scale, trials[:n]), 5) for n in points],
        "failed": [sum(trial.failure is not None for trial in trials[:n]) for n in points],
        "seconds": [float(f"{np.quantile(late, q):.3g}") for q in (0.5, 0.95)],
        "first_seconds": float(f"{seconds[0]:.3g}"),
    }


def _trials(
    suggester: Suggester, problem: Problem, seed: int, num_trials: int
) -> tuple[list[Trial], list[float]]:
    noise = np.random.default_rng([seed, zlib.crc32(problem.name.encode())])
    trials: list[Trial] = []
    seconds: list[float] = []
    while len(trials) < num_trials:
        started = cpu_seconds(suggester)
        found = suggester.suggest(trials, [])
        seconds.append(cpu_seconds(suggester) - started)
        if not found:
            break
        problem.space.accept(found[0])
        trials.append(problem.trial(len(trials), found[0], noise))
    return trials, seconds


def cpu_seconds(suggester: Suggester) -> float:
    """CPU seconds of this process and, if the suggester has one, of its own process."""
    return time.process_time() + float(getattr(suggester, "cpu_seconds", lambda: 0.0)())


def regret(problem: Problem, scale: RegretScale, trials: list[Trial]) -> float:
    """Normalised regret: the noiseless value of the trial that was observed to be best."""
    if scale.reference:
        return scale.regret(scale.score([problem.truth(trial.params) for trial in trials]))
    chosen = best(trials, problem.goals, problem.constraints)
    return scale.regret(scale.score([problem.truth(chosen.params)] if chosen else []))
