"""CPU seconds a suggestion by length of the history: random trials of one problem, one thread.

Processor time, because it is what one idle core needs, whatever else the machine does; seconds on the clock beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.suggesters.contestants import fingerprint, make

from automl.core.trial import Trial
from benchmarks.common import store
from benchmarks.peers.client import PEERS
from benchmarks.suggesters import problems

PROBLEM = "translation_one_gpu"
SIZES = (50, 200, 1000, 10_000)
LONGEST = {"ax": 200, "optuna-gp": 1000}  # beyond it a suggestion takes minutes
REPEATS = {50: 25, 200: 15}  # else 9

FIRST = """
import sys, time
sys.path.insert(0, {root!r})
import torch, numpy
from benchmarks import problems
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
    """Time each suggester that is a function of the history; the rows replace earlier ones."""
    for name in suggesters:
        if name in PEERS or name.startswith("tpe-"):
            continue
        first(name)
        for size in SIZES:
            if size <= LONGEST.get(name, SIZES[-1]):
                by_size(name, size)


def first(name: str) -> None:
    """The first suggestion of a fresh process on 20 trials, imports left out."""
    code = FIRST.format(root=str(Path(__file__).parents[2]), problem=PROBLEM, name=name)
    took = [subprocess.check_output([sys.executable, "-c", code]).split()[-2:] for _ in range(3)]
    _store(name, 0, [(float(cpu), float(clock)) for cpu, clock in took])


def by_size(name: str, size: int) -> None:
    """Suggestions on a history that grows by one trial each, as in a sweep."""
    problem, rng, repeats = problems.load(PROBLEM), np.random.default_rng(1), REPEATS.get(size, 9)
    points = problem.space.sample(rng, size + repeats)
    trials: list[Trial] = [problem.trial(i, params, rng) for i, params in enumerate(points)]
    suggester, took = make(name, problem, 0), []
    suggester.suggest(trials[: size - 1], [])
    for extra in range(repeats):
        started, cpu = time.perf_counter(), time.process_time()
        suggester.suggest(trials[: size + extra], [])
        took.append((time.process_time() - cpu, time.perf_counter() - started))
    _store(name, size, took)


def _store(name: str, size: int, took: Sequence[tuple[float, float]]) -> None:
    quantiles = np.quantile(np.array(took), [0.5, 0.95], axis=0).round(4).tolist()
    row = {
        "suggester": name, "size": size, "median": quantiles[0][0], "p95": quantiles[1][0],
        "clock_median": quantiles[0][1], "clock_p95": quantiles[1][1], "code": fingerprint(name),
    }  # fmt: skip
    store.append(store.SPEED, row)
    print(f"{name:15s} {size:6d} trials: CPU median {row['median']:.3f} s, 95th percentile {row['p95']:.3f} s; "
          f"on the clock {row['clock_median']:.3f} s, {row['clock_p95']:.3f} s", flush=True)  # fmt: skip
