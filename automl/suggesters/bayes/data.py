"""What a history says, as arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from automl.goals import Goal
from automl.ranking import value
from automl.trial import Trial, TrialState
from search_spaces import Space, SpaceError

Array = NDArray[np.float64]
BLAMELESS = frozenset({"preempted"})  # failures that say nothing about the configuration


@dataclass(frozen=True)
class Data:
    """Trials that say something.

    Args:
        unit: `n x d` configurations in the unit cube, NaN where inactive.
        metrics: by name, `n`, NaN where a trial did not reach it.
        failed: `n`, whether the configuration made the trial fail.
        kinds: `n`, the kind of failure or "".
    """

    unit: Array
    metrics: dict[str, Array]
    failed: NDArray[np.bool_]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.unit)


def collect(space: Space, history: Sequence[Trial], goals: Sequence[Goal], others: Sequence[str]) -> Data:
    """Read finished trials; those of another space, and failures that were nobody's fault, are left out.

    Args:
        goals: whose metric is taken as a loss (smaller is better); others: further metrics, as they are.
    """
    rows, losses, failed, kinds = [], [], [], []
    for trial in history:
        kind = trial.failure or ""
        if not trial.state.finished or kind in BLAMELESS or not _fits(space, trial):
            continue
        values = [loss_of(trial, goal) for goal in goals] + [trial.metrics.get(name, math.nan) for name in others]
        bad = trial.state is TrialState.FAILED or (trial.state is TrialState.COMPLETED and not math.isfinite(values[0]))
        if not bad and not math.isfinite(values[0]):
            continue  # stopped before it reported anything
        rows.append(trial.params)
        losses.append([v if math.isfinite(v) and not bad else math.nan for v in values])
        failed.append(bad)
        kinds.append(kind or ("missing_metric" if bad else ""))
    names = [goal.metric for goal in goals] + list(others)
    table = np.array(losses, dtype=np.float64).reshape(len(rows), len(names))
    unit = space.encode(rows) if rows else np.empty((0, len(space.parameters)))
    return Data(unit, {n: table[:, i] for i, n in enumerate(names)}, np.array(failed, dtype=bool), tuple(kinds))


def loss_of(trial: Trial, goal: Goal) -> float:
    """The goal's loss in a trial, as trials are ranked; NaN where it has none."""
    worth = value(trial, goal)
    return math.nan if worth is None else goal.loss(worth)


def _fits(space: Space, trial: Trial) -> bool:
    try:
        space.check(trial.params)
    except SpaceError:
        return False
    return True


def digest(*arrays: Array | Sequence[object]) -> bytes:
    """Identity of some arrays, to find what was computed for them before."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes() if isinstance(array, np.ndarray) else repr(array).encode())
    return state.digest()
