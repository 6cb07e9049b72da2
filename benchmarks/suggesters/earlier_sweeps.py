"""Sweeps that stand for a user's earlier ones: TPE, 40 trials, kept on disk."""

from __future__ import annotations

import json
import zlib
from typing import Final

import numpy as np

from automl.core.trial import Trial, TrialState
from automl.suggesters.base import EarlierSweep
from benchmarks.suggesters.contestants import make
from benchmarks.suggesters.held_out import CACHE, Judged, Task

NUM_TRIALS: Final = 40
SEED: Final = 11


def earlier_sweep(problem: Judged) -> EarlierSweep:
    """A sweep of TPE on a problem, kept on disk."""
    path = CACHE.parent / "earlier" / f"{problem.name}.json"
    if not path.exists():
        suggester = make("tpe", Task(problem.space), SEED)  # type: ignore[arg-type]
        rng = np.random.default_rng([SEED, zlib.crc32(problem.name.encode())])
        trials: list[Trial] = []
        for number in range(NUM_TRIALS):
            params = suggester.suggest(trials, [])[0]
            metrics = {"loss": problem.seen(params, rng)}
            trials.append(Trial(number, params, TrialState.COMPLETED, metrics=metrics))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([[t.params, t.metrics["loss"]] for t in trials]))
    rows = json.loads(path.read_text())
    return EarlierSweep(problem.name, [p for p, _ in rows], {"loss": [loss for _, loss in rows]})
