"""One run: the trials of one contestant on one problem with one seed."""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np

from automl.core.ranking import best
from automl.core.trial import Trial
from automl.suggesters.base import Suggester
from automl.suggesters.bayes.data import best_rows
from automl.suggesters.bayes.suggester import BayesSuggester, one_thread
from benchmarks.suggesters.contestants import make
from benchmarks.suggesters.fingerprint import fingerprint
from benchmarks.suggesters.problems import Problem
from benchmarks.suggesters.scoring import RegretScale

POINTS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100)


def run(
    name: str, problem: Problem, scale: RegretScale, seed: int, num_trials: int
) -> dict[str, Any]:
    """The row of one run: regret and failures at `POINTS`, and the CPU seconds of suggestions.

    `regret` is that of what is recommended, `visited` that of the best configuration tried.
    """
    suggester = make(name, problem, seed)
    points = [n for n in POINTS if n <= num_trials]
    try:
        trials, seconds = _trials(suggester, problem, seed, num_trials)
        advice = [recommended(suggester, trials[:n]) for n in points]
    finally:
        getattr(suggester, "close", lambda: None)()
    found = [
        regret(problem, scale, trials[:n], chosen) for n, chosen in zip(points, advice, strict=True)
    ]
    truths = [None if scale.reference else problem.truth(trial.params) for trial in trials]
    visited = [
        found[i] if scale.reference else scale.regret(scale.score(truths[:n]))
        for i, n in enumerate(points)
    ]
    late = sorted(seconds[10:50] or seconds)
    return {
        "problem": problem.name,
        "suggester": name,
        "seed": seed,
        "trials": num_trials,
        "code": fingerprint(name),
        "at": points,
        "regret": [round(value, 5) for value in found],
        "visited": [round(value, 5) for value in visited],
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


def recommended(suggester: Suggester, trials: list[Trial]) -> Any:
    """The tried configuration of which `bayes` expects most; None for the best observed."""
    if not isinstance(suggester, BayesSuggester) or len(suggester.goals) > 1:
        return None
    with one_thread():
        data = suggester._reader(trials)
        if not suggester._surrogates.possible(data):
            return None
        posterior = suggester._surrogates.fit(data)
    rows = best_rows(data, posterior.feasible, posterior.smoothed())
    return data.trials[int(rows[0])].params


def regret(problem: Problem, scale: RegretScale, trials: list[Trial], params: Any = None) -> float:
    """Normalised regret of the noiseless value of what is recommended.

    Args:
        params: the recommended configuration; None for the trial that was observed to be best.
    """
    if scale.reference:
        return scale.regret(scale.score([problem.truth(trial.params) for trial in trials]))
    chosen = best(trials, problem.goals, problem.constraints)
    params = params or (chosen.params if chosen else None)
    return scale.regret(scale.score([problem.truth(params)] if params else []))
