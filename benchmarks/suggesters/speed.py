"""CPU seconds of a suggestion by length of the history, on one problem and one thread.

CPU time, because other work on the machine disturbs it least; wall seconds beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from automl.core.trial import Trial
from benchmarks.common import store
from benchmarks.suggesters import problems
from benchmarks.suggesters.contestants import PEERS, make
from benchmarks.suggesters.fingerprint import fingerprint

PROBLEM = "translation_one_gpu"
SIZES = (50, 200, 1000, 10_000)
MAX_TRIALS = {"ax": 200, "optuna-gp": 1000}  # a suggestion takes minutes beyond it
REPEATS = {50: 25, 200: 15}

FIRST = """
import sys, time
sys.path.insert(0, {root!r})
import torch, numpy
from benchmarks.suggesters import problems
from benchmarks.suggesters.contestants import make
import automl.suggesters.base
torch.set_num_threads(1)
problem = problems.load({problem!r})
make({name!r}, problem, 0)
rng = numpy.random.default_rng(0)
trials = [problem.trial(i, p, rng) for i, p in enumerate(problem.space.sample(rng, 20))]
started, cpu = time.perf_counter(), time.process_time()
make({name!r}, problem, 0).suggest(trials, [])
print(time.process_time() - cpu, time.perf_counter() - started)
"""


def measure(suggesters: Sequence[str]) -> None:
    """Time and store each suggester that depends on the history only."""
    for name in suggesters:
        if name in (*PEERS, "tpe-group", "tpe-plain"):
            continue
        for row in rows(name, [size for size in SIZES if size <= MAX_TRIALS.get(name, SIZES[-1])]):
            store.append(store.SPEED, row)


def rows(name: str, sizes: Sequence[int]) -> Iterator[store.Row]:
    """Rows of the first suggestion of a new process, and of histories of these sizes."""
    yield first(name)
    for size in sizes:
        yield by_size(name, size)


def first(name: str) -> store.Row:
    """The first suggestion of a new process on 20 trials, without imports."""
    code = FIRST.format(root=str(Path(__file__).parents[2]), problem=PROBLEM, name=name)
    took = [subprocess.check_output([sys.executable, "-c", code]).split()[-2:] for _ in range(3)]
    return _row(name, 0, [(float(cpu), float(clock)) for cpu, clock in took])


def by_size(name: str, size: int) -> store.Row:
    """Suggestions on a history that grows by one trial each, as in a sweep."""
    problem = problems.load(PROBLEM)
    rng = np.random.default_rng(1)
    repeats = REPEATS.get(size, 9)
    points = problem.space.sample(rng, size + repeats)
    trials: list[Trial] = [problem.trial(i, params, rng) for i, params in enumerate(points)]
    suggester = make(name, problem, 0)
    took = []
    suggester.suggest(trials[: size - 1], [])
    for extra in range(repeats):
        started = time.perf_counter()
        cpu = time.process_time()
        suggester.suggest(trials[: size + extra], [])
        took.append((time.process_time() - cpu, time.perf_counter() - started))
    return _row(name, size, took)


def _row(name: str, size: int, took: Sequence[tuple[float, float]]) -> store.Row:
    quantiles = np.quantile(np.array(took), [0.5, 0.95], axis=0).round(4).tolist()
    row = {
        "suggester": name,
        "size": size,
        "median": quantiles[0][0],
        "p95": quantiles[1][0],
        "clock_median": quantiles[0][1],
        "clock_p95": quantiles[1][1],
        "code": fingerprint(name),
    }
    cpu = f"CPU median {row['median']:.3f} s, 95th percentile {row['p95']:.3f} s"
    wall = f"wall {row['clock_median']:.3f} s, {row['clock_p95']:.3f} s"
    print(f"{name:15s} {size:6d} trials: {cpu}; {wall}", flush=True)
    return row
